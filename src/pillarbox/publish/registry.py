"""From a broker URL to its publisher. Clients are imported only when their scheme is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast

from ..ports import Publisher
from .clients import known_scheme, load

PUBLISHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "kafka:KafkaPublisher",
        "amqp": "rabbitmq:RabbitPublisher",
        "amqps": "rabbitmq:RabbitPublisher",
        "nats": "nats:NatsPublisher",
        "embedded": "embedded:EmbeddedPublisher",
        "memory": "memory:MemoryPublisher",
    }
)
"""Scheme -> module of this package : class with ``from_url(url, *, deadline, **options)``."""


def open_publisher(url: str, *, deadline: float = 20.0, **options: object) -> Publisher:
    """The opened publisher for ``url``. ``deadline``: the longest that one ``publish`` may take, in seconds.

    Raises BadUrl (PB-002), MissingDriver (PB-003), BrokerUnavailable (PB-005) or AccessRefused (PB-008).

    >>> open_publisher("memory:").capabilities.scheme
    'memory'
    """
    publisher = make_publisher(url, deadline=deadline, **options)
    try:
        publisher.open()
    except BaseException:
        publisher.close()
        raise
    return publisher


def make_publisher(url: str, *, deadline: float = 20.0, **options: object) -> Publisher:
    """As :func:`open_publisher`, but not opened: nothing was sent over the network yet."""
    publisher = load(scheme_of(url), PUBLISHERS, __package__)
    return cast("Publisher", publisher.from_url(url, deadline=deadline, **options))


def scheme_of(url: str) -> str:
    """The scheme of a broker URL that this release can publish to; BadUrl (PB-002) lists them otherwise."""
    return known_scheme(url, PUBLISHERS)
