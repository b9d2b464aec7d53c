"""Shorthands for plans, and the reasons that several strategies share. Pure."""

from __future__ import annotations

from typing import Final, Protocol

from .model import Fault, Impossible, NotRun, Outcome, Plan, Planned

NO_NETWORK: Final = "SQLite is a file that the process itself writes: there is no answer that could be lost on the way."
CONSUMING: Final = Impossible("A window of the consuming side; how the event was sent plays no part in it.")
SENDING: Final = Impossible("A window of the sending side; how the event is consumed plays no part in it.")
NO_RELAY: Final = Impossible("There is no relay: whoever commits also sends.")
NO_LEASE: Final = Impossible("Nobody holds a lease while sending.")
ONE_COMMIT: Final = Impossible("The broker has no transaction of its own here that could fail to commit.")
SENDS_LATER: Final = Impossible("Nothing is sent before COMMIT has returned, so nothing can be confirmed before it.")


class Column(Protocol):
    """A column of the matrix: a way of sending or of consuming."""

    id: str
    name: str
    summary: str

    def plan(self, window: str, database: str, broker: str) -> Plan:
        """Where this window's fault is in this program, and what comes of it."""
        ...


def planned(fault: Fault, *expected: Outcome, why: str, possible: Outcome | None = None) -> Planned:
    """A cell that runs; without outcomes, NOTHING is expected."""
    also = frozenset({possible}) if possible else frozenset()
    return Planned(fault, frozenset(expected or {Outcome.NOTHING}), why, also)


def not_run(*expected: Outcome, why: str, reason: str) -> NotRun:
    """A cell that exists and does not run here."""
    return NotRun(frozenset(expected or {Outcome.NOTHING}), why, reason)
