"""Which module reads from which broker: one visible list, imported only when a consumer runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

from ..errors import BadConsumer
from ..ports import Source
from ..publish.clients import known_scheme, load

SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "kafka:KafkaSource",
        "amqp": "rabbitmq:RabbitSource",
        "amqps": "rabbitmq:RabbitSource",
        "embedded": "embedded:EmbeddedSource",
    }
)
"""Scheme -> module of this package : class with ``from_url(url, consumer, sources, **options)``."""


class Broker(Protocol):
    """Anything that can make a source, given as ``Consumer(broker=…)`` instead of a URL: a test's, or your own."""

    def source(self, consumer: str, sources: Sequence[str]) -> Source:
        """A source, not yet open, through which ``consumer`` reads ``sources``."""
        ...


def make_source(broker: str | Broker, consumer: str, sources: Sequence[str], options: Mapping[str, Any]) -> Source:
    """The source for a broker URL (by its scheme) or a broker object; nothing was sent over the network yet.

    Raises BadUrl (PB-002) for a URL that cannot be read, MissingDriver (PB-003) when the client is not installed and
    BadConsumer (PB-041) for an option that this broker's source does not take.
    """
    if not isinstance(broker, str):
        return broker.source(consumer, sources)
    scheme = check_scheme(broker)
    source = load(scheme, SOURCES, __package__)
    try:
        return cast("Source", source.from_url(broker, consumer, tuple(sources), **options))
    except TypeError as error:
        raise BadConsumer(
            f"The options {', '.join(options)} of consumer {consumer!r} do not fit {scheme}://: {error}.",
            fix="docs/consumers.md, section 'Per broker', lists the options of each broker.",
        ) from error


def check_scheme(url: str) -> str:
    """The scheme of a broker URL that this release can read from; BadUrl (PB-002) lists them otherwise."""
    return known_scheme(url, SOURCES)
