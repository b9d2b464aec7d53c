"""From a URL's scheme to the class that speaks to that broker, importing its client only then. For both directions."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from ..errors import BadUrl, MissingDriver

EXTRAS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "kafka": ("confluent_kafka", "kafka"),
        "amqp": ("pika", "rabbitmq"),
        "amqps": ("pika", "rabbitmq"),
        "nats": ("nats", "nats"),
    }
)
"""Scheme -> the client's module, and the extra that installs it."""


def known_scheme(url: object, known: Mapping[str, str]) -> str:
    """The scheme of a broker URL, one of ``known``; BadUrl (PB-002) lists them otherwise."""
    names = ", ".join(sorted(known))
    if not isinstance(url, str) or ":" not in url:
        # The text itself stays out of the message: it may be a password pasted in the wrong place.
        raise BadUrl("The broker URL has no scheme.", fix=f"Begin it with one of: {names}.")
    scheme = url.split(":", 1)[0].lower()
    if scheme not in known:
        raise BadUrl(f"No broker is known under {scheme[:40]!r}.", fix=f"Use one of: {names}.")
    return scheme


def load(scheme: str, known: Mapping[str, str], package: str | None) -> Any:
    """The class that ``known`` names for the scheme as ``module:class`` of ``package``.

    Raises MissingDriver (PB-003), with the line that installs it, when the client is not there.
    """
    module_name, class_name = known[scheme].split(":")
    try:
        module = import_module(f".{module_name}", package)
    except ModuleNotFoundError as error:
        client, extra = EXTRAS.get(scheme, ("", ""))
        if not client or error.name is None or error.name.split(".")[0] != client:
            raise
        raise MissingDriver(
            f"{scheme}:// needs the package {client!r}, which is not installed.",
            fix=f"pip install 'pillarbox[{extra}]'",
        ) from error
    return getattr(module, class_name)
