"""Which module keeps the dead letters of which broker: one visible list, imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, Protocol, cast, runtime_checkable

from ...errors import BadConsumer
from ...publish.clients import known_scheme, load
from ..sources import Broker
from .letters import DeadLetterBox

BOXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "kafka:KafkaBox",
        "amqp": "rabbitmq:RabbitBox",
        "amqps": "rabbitmq:RabbitBox",
        "nats": "nats:NatsBox",
        "embedded": "embedded:EmbeddedBox",
    }
)
"""Scheme -> module of this package : class with ``from_url(url, consumer, source, **options)``."""


@runtime_checkable
class KeepsDeadLetters(Protocol):
    """A :class:`~pillarbox.consume.Broker` that can show what was given up."""

    def dead_letters(self, consumer: str, source: str) -> DeadLetterBox:
        """The box, not yet open."""
        ...


@contextmanager
def open_dead_letters(broker: str | Broker, consumer: str, source: str, **options: Any) -> Iterator[DeadLetterBox]:
    """The dead letters that ``consumer`` has of ``source``, open until the end of the block.

    Raises BadUrl (PB-002) for a URL that cannot be read, BadConsumer (PB-041) for a broker object that keeps no dead
    letters, and what opening raises.

    >>> # with open_dead_letters("kafka://localhost", "stock", "orders") as box:
    >>> #     print([letter.reason for letter in box.letters()])
    """
    box = _make(broker, consumer, source, options)
    try:
        box.open()
        yield box
    finally:
        box.close()


def _make(broker: str | Broker, consumer: str, source: str, options: Mapping[str, Any]) -> DeadLetterBox:
    if isinstance(broker, KeepsDeadLetters):
        return broker.dead_letters(consumer, source)
    if not isinstance(broker, str):
        raise BadConsumer(f"{broker!r} has no method dead_letters(consumer, source).", fix="Give the broker's URL.")
    kind = load(known_scheme(broker, BOXES), BOXES, __package__)
    return cast("DeadLetterBox", kind.from_url(broker, consumer, source, **options))
