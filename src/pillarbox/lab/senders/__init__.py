"""Which client sends to which broker: one visible list, imported only when an application runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from ...event.destination import Destination
from ..ports import Sender

SENDERS: Final = {"kafka": "kafka", "amqp": "rabbitmq", "amqps": "rabbitmq", "embedded": "embedded"}
"""Scheme of the URL -> module of this package with ``open_sender`` and ``settings``."""


def open_sender(url: str, destination: Destination, transactional_id: str | None = None) -> Sender:
    """The broker's own client, connected and ready to send. Errors are the client's own."""
    make: Callable[..., Sender] = _module(url).open_sender
    return make(url, destination, transactional_id)


def sender_settings(url: str, *, transactional: bool) -> Mapping[str, Any]:
    """What the client is asked for: acknowledgements, idempotence, retries, transactions."""
    found: Mapping[str, Any] = _module(url).settings(transactional=transactional)
    return found


def _module(url: str) -> Any:
    return import_module(f".{SENDERS[url.partition(':')[0]]}", __package__)
