"""Pillarbox: a transactional outbox.

Your row and its event commit together; a relay publishes the event; a consumer applies it once. What is public is what
:data:`__all__` names, what ``pillarbox.testing`` names, and what the documentation names. Names are loaded when first
used, so that ``import pillarbox`` is cheap and loads no database or broker client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .commit_hook import after_commit
    from .consume import Consumer, Received
    from .errors import PillarboxError, PillarboxWarning
    from .event.destination import Destination, Exchange, Topic
    from .event.event import Event
    from .event.types import event_type
    from .event.upcasting import upcaster
    from .inbox import AsyncInbox, Inbox
    from .outbox import AsyncOutbox, Outbox, Queued
    from .policy.retry import RetryPolicy
    from .relay import Relay, RelaySettings
    from .store.ddl import include_object
    from .store.engines import sqlite_engine, use_explicit_begin
    from .store.install import install
    from .wiring import relay_for

__version__ = "0.1.0"

_WHERE = {
    "AsyncInbox": "inbox",
    "AsyncOutbox": "outbox",
    "Consumer": "consume",
    "Destination": "event.destination",
    "Event": "event.event",
    "Exchange": "event.destination",
    "Inbox": "inbox",
    "Outbox": "outbox",
    "PillarboxError": "errors",
    "PillarboxWarning": "errors",
    "Queued": "outbox",
    "Received": "consume",
    "Relay": "relay",
    "RelaySettings": "relay",
    "RetryPolicy": "policy.retry",
    "Topic": "event.destination",
    "after_commit": "commit_hook",
    "event_type": "event.types",
    "include_object": "store.ddl",
    "install": "store.install",
    "relay_for": "wiring",
    "sqlite_engine": "store.engines",
    "upcaster": "event.upcasting",
    "use_explicit_begin": "store.engines",
}

__all__ = [
    "AsyncInbox",
    "AsyncOutbox",
    "Consumer",
    "Destination",
    "Event",
    "Exchange",
    "Inbox",
    "Outbox",
    "PillarboxError",
    "PillarboxWarning",
    "Queued",
    "Received",
    "Relay",
    "RelaySettings",
    "RetryPolicy",
    "Topic",
    "after_commit",
    "event_type",
    "include_object",
    "install",
    "relay_for",
    "sqlite_engine",
    "upcaster",
    "use_explicit_begin",
]


def __getattr__(name: str) -> object:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'pillarbox' has no attribute {name!r}")
    return getattr(import_module(f".{where}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
