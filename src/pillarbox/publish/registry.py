"""From a broker URL to its publisher. Clients are imported only when their scheme is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final, cast

from ..errors import BadUrl, MissingDriver
from ..ports import Publisher

PUBLISHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "kafka:KafkaPublisher",
        "amqp": "rabbitmq:RabbitPublisher",
        "amqps": "rabbitmq:RabbitPublisher",
        "embedded": "embedded:EmbeddedPublisher",
        "memory": "memory:MemoryPublisher",
    }
)
"""Scheme -> module of this package : class with ``from_url(url, *, deadline, **options)``."""

EXTRAS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "kafka": ("confluent_kafka", "kafka"),
        "amqp": ("pika", "rabbitmq"),
        "amqps": ("pika", "rabbitmq"),
    }
)
"""Scheme -> the client's module, and the extra that installs it."""


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
    scheme = scheme_of(url)
    module_name, class_name = PUBLISHERS[scheme].split(":")
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
    return cast("Publisher", getattr(module, class_name).from_url(url, deadline=deadline, **options))


def scheme_of(url: str) -> str:
    """The scheme of a broker URL that this release can publish to; BadUrl (PB-002) lists them otherwise."""
    known = ", ".join(sorted(PUBLISHERS))
    if not isinstance(url, str) or ":" not in url:
        # The text itself stays out of the message: it may be a password pasted in the wrong place.
        raise BadUrl("The broker URL has no scheme.", fix=f"Begin it with one of: {known}.")
    scheme = url.split(":", 1)[0].lower()
    if scheme not in PUBLISHERS:
        raise BadUrl(f"No broker is known under {scheme!r}.", fix=f"Use one of: {known}.")
    return scheme
