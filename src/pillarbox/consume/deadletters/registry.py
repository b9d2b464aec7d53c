"""Which module keeps the dead letters of which broker: one visible list, imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

from ...publish.clients import known_scheme, load
from .letters import DeadLetterBox

BOXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "kafka:KafkaBox",
        "amqp": "rabbitmq:RabbitBox",
        "amqps": "rabbitmq:RabbitBox",
        "embedded": "embedded:EmbeddedBox",
    }
)
"""Scheme -> module of this package : class with ``from_url(url, consumer, source, **options)``."""


class KeepsDeadLetters(Protocol):
    """A broker that was given as an object and not as a URL."""

    def dead_letters(self, consumer: str, source: str) -> DeadLetterBox:
        """The box, not yet open."""
        ...


@contextmanager
def open_dead_letters(
    broker: str | KeepsDeadLetters, consumer: str, source: str, **options: Any
) -> Iterator[DeadLetterBox]:
    """The dead letters that ``consumer`` has of ``source``, open until the end of the block.

    Raises BadUrl (PB-002) for a URL that cannot be read, and what opening raises.

    >>> # with open_dead_letters("kafka://localhost", "stock", "orders") as box:
    >>> #     print([letter.reason for letter in box.letters()])
    """
    box = _make(broker, consumer, source, options)
    try:
        box.open()
        yield box
    finally:
        box.close()


def _make(broker: str | KeepsDeadLetters, consumer: str, source: str, options: Mapping[str, Any]) -> DeadLetterBox:
    if not isinstance(broker, str):
        return broker.dead_letters(consumer, source)
    kind = load(known_scheme(broker, BOXES), BOXES, __package__)
    return cast("DeadLetterBox", kind.from_url(broker, consumer, source, **options))
