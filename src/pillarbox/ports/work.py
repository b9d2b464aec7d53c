"""What a relay under the row lease needs of a store: claims and settlements of deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from ..event.message import Message


class WorkKey(NamedTuple):
    """Primary key of a ready or parked row: partition, event row id, and which of its destinations (from 0)."""

    partition_no: int
    id: int
    dest: int


class Delivery(NamedTuple):
    """One event for one destination, claimed for publishing.

    ``attempts`` counts failures that were charged; ``claims`` counts claims since the last
    settlement, this one included.
    """

    key: WorkKey
    lane: int
    attempts: int
    claims: int
    message: Message


class Claim(NamedTuple):
    """What one claim took, under one fencing token. ``orphans`` are work rows whose event is missing."""

    token: int
    deliveries: Sequence[Delivery]
    orphans: Sequence[OrphanWork] = ()


class OrphanWork(NamedTuple):
    """A work row without its event: never skipped, always set aside as dead with that reason."""

    key: WorkKey
    lane: int
    attempts: int
    claims: int


class Sent(NamedTuple):
    """To settle: the broker confirmed it, there."""

    key: WorkKey
    partition: int | None
    offset: int | None


class Parked(NamedTuple):
    """To settle: it cannot go now. ``due_in`` seconds from the database's now (RETRY), None for DEAD."""

    key: WorkKey
    lane: int
    state: Literal["RETRY", "DEAD"]
    due_in: float | None
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """All outcomes of one claim, written in one transaction. A row is named at most once.

    ``given_back`` rows return to the queue at once and uncounted: the claim is taken off ``claims`` again.
    """

    token: int
    sent: Sequence[Sent] = ()
    parked: Sequence[Parked] = ()
    given_back: Sequence[WorkKey] = ()

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to write."""
        return not (self.sent or self.parked or self.given_back)


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settlement really changed. ``lost`` rows were no longer owned: they are left alone."""

    sent: int
    parked: int
    given_back: int
    lost: Sequence[WorkKey] = field(default=())


class Claims(Protocol):
    """Taking work under a lease.

    One thread claims, settles and moves; ``renew`` alone may be called from another one at the same time and uses a
    connection of its own. A database that does not answer is DatabaseUnavailable (PB-004).
    """

    def claim(self, limit: int) -> Claim:
        """Lease up to ``limit`` ready rows in one short, committed transaction; no deliveries: nothing to do."""
        ...

    def renew(self, token: int, keys: Sequence[WorkKey]) -> int:
        """Extend the lease of rows still held under ``token``; returns how many still are."""
        ...

    def move_due(self, limit: int) -> int:
        """Move parked rows whose time has come back to ready; returns how many."""
        ...


class Settlements(Protocol):
    """Recording outcomes, fenced by owner and token."""

    def settle(self, settlement: Settlement) -> Settled:
        """Write all of it in one transaction. Rows lost to another owner are reported, not touched."""
        ...


class WorkStore(Claims, Settlements, Protocol):
    """What a row-lease relay needs of a store."""

    relay_id: str

    def close(self) -> None:
        """Return connections."""
        ...
