"""Which handlers a consumer has, by event type, in the order of their registration."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from .handlers import Handler

_log = logging.getLogger("pillarbox.consume")

MAX_NAMES_REMEMBERED = 1_000
_FATES: Final = {
    "skip": "such events are acknowledged",
    "set aside": "such events are set aside",
    "raise": "that ends it",
}


class Registrations:
    """The handlers of one consumer."""

    def __init__(self) -> None:
        self._by_type: dict[str, tuple[Handler, ...]] = {}
        self._told: set[str] = set()

    def add(self, handler: Handler) -> None:
        """Append ``handler`` to those of its type; they share one mark and one transaction."""
        self._by_type[handler.event_type] = (*self._by_type.get(handler.event_type, ()), handler)

    def of(self, event_type: str) -> tuple[Handler, ...]:
        """The handlers of a type, in order; none for a type that nobody registered."""
        return self._by_type.get(event_type, ())

    def note_unhandled(self, event_type: str, consumer: str, policy: str = "skip") -> None:
        """Log, once per type, what becomes of events of it."""
        if event_type not in self._told and len(self._told) < MAX_NAMES_REMEMBERED:
            self._told.add(event_type)
            fate = _FATES.get(policy, policy)
            _log.info("consumer %s has no handler for %r: %s", consumer, event_type, fate)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_type)

    def __len__(self) -> int:
        return len(self._by_type)
