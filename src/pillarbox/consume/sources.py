"""Which module reads from which broker: one visible list, imported only when a consumer runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

from ..errors import BadUrl, MissingDriver
from ..ports import Source
from ..publish.registry import EXTRAS

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

    Raises BadUrl (PB-002) for a URL that cannot be read and MissingDriver (PB-003) when the client is not installed.
    """
    if not isinstance(broker, str):
        return broker.source(consumer, sources)
    scheme = check_scheme(broker)
    module_name, class_name = SOURCES[scheme].split(":")
    try:
        module = import_module(f".{module_name}", __package__)
    except ModuleNotFoundError as error:
        client, extra = EXTRAS.get(scheme, ("", ""))
        if not client or error.name is None or error.name.split(".")[0] != client:
            raise
        raise MissingDriver(
            f"{scheme}:// needs the package {client!r}, which is not installed.",
            fix=f"pip install 'pillarbox[{extra}]'",
        ) from error
    return cast("Source", getattr(module, class_name).from_url(broker, consumer, tuple(sources), **options))


def check_scheme(url: str) -> str:
    """The scheme of a broker URL that this release can read from; BadUrl (PB-002) lists them otherwise."""
    known = ", ".join(sorted(SOURCES))
    scheme, colon, _ = url.partition(":")
    if not colon:  # the text itself stays out of the message: it may be a password in the wrong place
        raise BadUrl("The broker URL has no scheme.", fix=f"Begin it with one of: {known}.")
    if scheme.lower() not in SOURCES:
        raise BadUrl(f"No broker is known under {scheme.lower()[:40]!r}.", fix=f"Use one of: {known}.")
    return scheme.lower()
