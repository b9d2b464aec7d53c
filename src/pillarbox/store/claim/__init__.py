"""Taking work under a lease: one strategy for each kind of server, chosen by the server's own version.

All of them take rows in one ordered range of the hot table's primary key, (partition_no, id, dest). Relays start at
different partitions, so that they rarely meet. New rows and rows whose lease ran out satisfy one predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from sqlalchemy import Connection

from ..capabilities import ClaimStrategyName
from ..workrows import Fence


class Wanted(NamedTuple):
    """A claim as the relay asks for it. ``lease`` in seconds; ``start`` is the partition to begin at.

    ``below``, for a strategy of ``one_range``: take from the partitions before this one instead.
    """

    fence: Fence
    lease: float
    start: int
    limit: int
    below: int | None = None


WorkRow = tuple[int, int, int, int, int, int]
"""A claimed row: partition_no, id, dest, lane, attempts, claims; the last includes this claim."""


class ClaimStrategy(Protocol):
    """How one kind of server hands out work."""

    @property
    def peek(self) -> Callable[[Connection], bool] | None:
        """A read that says False when there is surely nothing to claim; None where claiming locks out nobody."""
        ...

    @property
    def one_range(self) -> bool:
        """Whether a claim must take partitions from the start on and those before it in two transactions."""
        ...

    def claim(self, connection: Connection, wanted: Wanted) -> Sequence[WorkRow]:
        """Lease up to ``wanted.limit`` rows in the open transaction, in the order in which they were found."""
        ...


def from_start_on(wanted: Wanted, take: Callable[[str, int], Sequence[WorkRow]]) -> Sequence[WorkRow]:
    """Take rows from the start partition on, and only if that is not enough from the partitions before it.

    ``take`` gets a condition on partition_no and how many rows are still wanted.
    """
    rows = take(f"partition_no >= {wanted.start:d}", wanted.limit)
    if wanted.start > 0 and len(rows) < wanted.limit:
        return [*rows, *take(f"partition_no < {wanted.start:d}", wanted.limit - len(rows))]
    return rows


def strategy(name: ClaimStrategyName) -> ClaimStrategy:
    """The strategy that a server's capabilities name."""
    match name:
        case "skip-locked-mysql":
            from .skip_locked import SkipLockedClaim

            return SkipLockedClaim()
        case "postgres":
            from .postgres import PostgresClaim

            return PostgresClaim()
        case "compare-and-set":
            from .compare_and_set import CompareAndSetClaim

            return CompareAndSetClaim()
        case "sqlite":
            from .sqlite import SqliteClaim

            return SqliteClaim()
