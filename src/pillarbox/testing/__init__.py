"""For tests of your own: twins in memory, a clock that stands still, and what the plugin's fixtures give.

``pillarbox.testing.conformance`` has the suites that hold a store, a publisher or a consumer's source to its contract.
Names are loaded when first used: pytest imports this package in every run, for its plugin.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..consume.memory import MemoryBroker
    from ..publish.memory import MemoryPublisher
    from ..store.memory import MemoryStore
    from .clock import FakeClock
    from .committed import CommittedEvent, CommittedEvents
    from .exactly_once import assert_exactly_once_effect
    from .recorder import OutboxRecorder

_WHERE = {
    "CommittedEvent": ".committed",
    "CommittedEvents": ".committed",
    "FakeClock": ".clock",
    "MemoryBroker": "..consume.memory",
    "MemoryPublisher": "..publish.memory",
    "MemoryStore": "..store.memory",
    "OutboxRecorder": ".recorder",
    "assert_exactly_once_effect": ".exactly_once",
}

__all__ = [
    "CommittedEvent",
    "CommittedEvents",
    "FakeClock",
    "MemoryBroker",
    "MemoryPublisher",
    "MemoryStore",
    "OutboxRecorder",
    "assert_exactly_once_effect",
]


def __getattr__(name: str) -> object:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'pillarbox.testing' has no attribute {name!r}")
    return getattr(import_module(where, __name__), name)
