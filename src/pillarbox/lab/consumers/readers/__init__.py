"""Which client reads from which broker: one visible list, imported only when a consumer runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from ..desk import Desk, Reader

READERS: Final = {"kafka": "kafka", "amqp": "rabbitmq", "amqps": "rabbitmq", "embedded": "embedded"}
"""Scheme of the URL -> module of this package with ``open_reader(desk, automatic)``."""


def open_reader(desk: Desk, *, automatic: bool) -> Reader:
    """The broker's own client, connected. ``automatic``: it acknowledges what it delivers by itself."""
    module = import_module(f".{READERS[desk.broker.partition(':')[0]]}", __package__)
    make: Callable[..., Reader] = module.open_reader
    return make(desk, automatic=automatic)
