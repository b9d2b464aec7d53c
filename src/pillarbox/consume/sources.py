"""Which module reads from which broker: one visible list, imported only when a consumer runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

from ..errors import BadConsumer
from ..ports import Source
from ..publish.clients import known_scheme, load
from ..publish.subjects import takes

SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "kafka:KafkaSource",
        "amqp": "rabbitmq:RabbitSource",
        "amqps": "rabbitmq:RabbitSource",
        "nats": "nats:NatsSource",
        "embedded": "embedded:EmbeddedSource",
    }
)
"""Scheme -> module of this package : class with ``from_url(url, consumer, sources, **options)``."""


def _anything(destination: str, source: str) -> bool:
    """Bindings decide, and only the broker knows them."""
    return True


def _same(destination: str, source: str) -> bool:
    return destination == source


def _by_subject(destination: str, source: str) -> bool:
    """A routing key adds tokens, which are not known here."""
    return takes(source, destination) or source.startswith(f"{destination}.")


REACHES: Final[Mapping[str, Callable[[str, str], bool]]] = MappingProxyType(
    {"amqp": _anything, "amqps": _anything, "nats": _by_subject}
)
"""Scheme -> whether an event for a destination may come by a source, where that is not simply the same name."""


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


def may_reach(broker: str | Broker, destination: str, sources: Sequence[str]) -> bool:
    """False when an event for ``destination`` surely does not come by one of the sources.

    >>> may_reach("nats://host", "orders.created", ["orders.*"]), may_reach("kafka://host", "orders", ["payments"])
    (True, False)
    """
    scheme = broker.split(":", 1)[0].lower() if isinstance(broker, str) else ""
    reaches = REACHES.get(scheme, _same)
    return any(reaches(destination, source) for source in sources)


def check_scheme(url: str) -> str:
    """The scheme of a broker URL that this release can read from; BadUrl (PB-002) lists them otherwise."""
    return known_scheme(url, SOURCES)
