"""Which handlers a consumer has, by event type, in the order of their registration."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from ..errors import EventTypeTwice
from ..event.types import EventType
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
        self._classes: dict[EventType, type] = {}
        self._told: set[str] = set()

    def add(self, handler: Handler) -> None:
        """Append ``handler`` to those of its type; they share one mark and one transaction.

        Raises EventTypeTwice (PB-053) for a second class of one type and version: which of them says what the payload
        is would depend on the handler, and an upcaster of the one would not lift for the other.
        """
        declared = handler.declared
        if declared is not None:
            known = self._classes.setdefault(declared, handler.into)
            if known is not handler.into:
                raise EventTypeTwice(
                    f"Version {declared.version} of {declared.name!r} is {_place(known)} already, and the handler "
                    f"{handler.name!r} takes {_place(handler.into)}."
                )
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


def _place(cls: type) -> str:
    """A class so that two of one name are told apart."""
    return f"{cls.__module__}.{cls.__qualname__}"
