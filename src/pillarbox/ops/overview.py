"""How many events are where."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import Connection

from ..store import inspect

STATES: Final = ("PENDING", "PROCESSING", "RETRY", "SENT", "DEAD")
"""The states that are always shown; others (ORPHAN, …) only when something is in them."""

WHY: Final = {
    "PENDING": "committed, a relay takes them next",
    "PROCESSING": "on their way, under a relay's lease",
    "RETRY": "failed, tried again by themselves",
    "SCHEDULED": "not to be sent before their time",
    "HELD": "wait behind another event of their key or destination: pillarbox held list",
    "DEAD": "given up, and wait for you: pillarbox dead list",
    "MISPLACED": "in a wrong partition: written with another hash, or another number of partitions",
    "BURIED": "given up for good, kept for the record",
}
"""What a person may want to know about the events of a state."""

_FINISHED: Final = ("SENT", "DEAD", "BURIED")


class Status(NamedTuple):
    """Deliveries by state (one per event and destination), and the age in seconds of the oldest unconfirmed one."""

    counts: dict[str, int]
    oldest_age: float | None

    @property
    def waiting(self) -> int:
        """How many are neither sent nor given up."""
        return sum(count for state, count in self.counts.items() if state not in _FINISHED)


def overview(connection: Connection) -> Status:
    """The counts now. The age is by the database's clock; None when nothing waits."""
    found = inspect.overview(connection)
    shown = {state: found.counts.get(state, 0) for state in STATES}
    return Status(shown | {state: n for state, n in found.counts.items() if n}, found.oldest_age)
