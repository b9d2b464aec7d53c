"""What a relay under the partition lease needs of a store: ownership of partitions, reading and settling in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from .work import Delivery, OrphanWork, Sent, WorkKey

EVERY_LANE: Final = -1
"""The lane of a hold on a whole destination."""


class Stream(NamedTuple):
    """What stays in order: the events of one key (``lane``) for one destination (``target``, its hash)."""

    partition_no: int
    lane: int
    target: int


class Hold(NamedTuple):
    """A stream, or with EVERY_LANE a whole destination, whose later events wait in the parked table.

    ``backoff``: its head failed and is tried again in ``due_in`` seconds. ``dead``: its head was given up, and a person
    decides. ``away``: the destination is in trouble, and is tried in ``due_in`` seconds. ``drain``: send what waits.
    """

    stream: Stream
    mode: Literal["backoff", "dead", "away", "drain"]
    head_id: int
    due_in: float | None
    destination: str
    reason: str


class Tenure(NamedTuple):
    """The right to one partition: every settlement carries it, and the store refuses a stale one."""

    partition_no: int
    token: int
    nonce: int


class Partition(NamedTuple):
    """A partition as its new owner finds it.

    Nothing at or below ``low_id`` can become ready any more. Ids up to ``careful_to`` were on their way when an owner
    crashed, ``crashes`` times in a row; 0 for both when the last one left in order.
    """

    tenure: Tenure
    low_id: int
    careful_to: int
    crashes: int
    holds: Sequence[Hold]


class PartitionState(NamedTuple):
    """A partition as anybody sees it. ``free``: it may be acquired; else at the earliest in ``free_in`` seconds."""

    partition_no: int
    owner: str
    free: bool
    free_in: float


class Fleet(NamedTuple):
    """The relays that live, sorted, and all partitions."""

    relays: Sequence[str]
    partitions: Sequence[PartitionState]


class Span(NamedTuple):
    """Where to read a partition: rows with an id above ``after``."""

    partition_no: int
    after: int


class Reading(NamedTuple):
    """Rows in order of partition, id, destination number.

    ``more`` is False when the spans hold nothing behind the last row. Where ``held`` lanes were named, their deliveries
    come with an empty payload.
    """

    deliveries: Sequence[Delivery]
    orphans: Sequence[OrphanWork]
    more: bool


class Signs(NamedTuple):
    """What one cheap look found: rows in the spans, parked rows that are due, holds set to drain, living relays."""

    ready: bool
    due: bool
    drain: bool
    relays: int


class Progress(NamedTuple):
    """The new state of one owned partition, written with each settlement. Marks go up, except ``low_id`` after a
    straggler. ``handed_to`` 0: nothing is on its way."""

    tenure: Tenure
    low_id: int
    handed_to: int
    careful_to: int
    crashes: int


class Aside(NamedTuple):
    """To settle: it leaves the queue, or changes its place among the parked. ``due_in`` seconds for RETRY."""

    key: WorkKey
    stream: Stream
    state: Literal["RETRY", "HELD", "DEAD"]
    due_in: float | None
    attempts: int
    error: str


class SentParked(NamedTuple):
    """To settle: a parked one (of a stream that drains) that the broker confirmed."""

    key: WorkKey
    lane: int
    partition: int | None
    offset: int | None


@dataclass(frozen=True, slots=True)
class OrderedSettlement:
    """Outcomes of one round, written in one transaction. A row is named at most once.

    ``progress`` names every partition of every row. ``sent`` and ``aside`` are ready rows, ``sent_parked`` and
    ``aside_parked`` parked ones. ``holds`` are written or replaced; ``freed`` are removed unless something is still
    parked under them as HELD or RETRY.
    """

    progress: Sequence[Progress]
    sent: Sequence[Sent] = ()
    aside: Sequence[Aside] = ()
    sent_parked: Sequence[SentParked] = ()
    aside_parked: Sequence[Aside] = ()
    holds: Sequence[Hold] = ()
    freed: Sequence[Stream] = ()


class OrderedSettled(NamedTuple):
    """What really happened. Of a ``lost`` partition nothing was written.

    ``vanished`` rows were gone though the partition was ours: the receipts of sent ones are written all the same.
    ``kept`` streams of ``freed`` are not free: something is parked under them.
    """

    sent: int
    aside: int
    lost: Sequence[Tenure] = ()
    vanished: Sequence[WorkKey] = ()
    kept: Sequence[Stream] = ()


class Ownership(Protocol):
    """Who owns which partition. All may raise DatabaseUnavailable (PB-004), and may then be repeated."""

    def enter(self, seconds: float) -> None:
        """Register as a living relay for ``seconds``. LeaseMismatch (PB-032) while relays of the other kind live."""
        ...

    def stay(self, seconds: float, tenures: Sequence[Tenure]) -> Sequence[Tenure]:
        """Register again and renew the leases; returns those that are lost. The one call for another thread."""
        ...

    def leave(self) -> None:
        """Take the registration back."""
        ...

    def fleet(self) -> Fleet:
        """Look at relays and partitions."""
        ...

    def acquire(self, partition_nos: Sequence[int]) -> Sequence[Partition]:
        """Take those of the partitions that are free at this moment, each by compare-and-set."""
        ...

    def release(self, progress: Sequence[Progress]) -> None:
        """Give partitions up in order, for others to take at once. Stale tenures change nothing."""
        ...


class OrderedQueue(Protocol):
    """Reading the owned partitions and settling. One thread.

    ``read`` and ``read_parked`` leave out, in the same snapshot, partitions whose owner is another relay by now: who
    was stalled before the read knows old holds, and would send what has to wait. A batch that was read as the owner is
    a prefix of each of its streams for ever.
    """

    def read(self, spans: Sequence[Span], limit: int, max_bytes: int, held: Collection[int]) -> Reading:
        """Up to ``limit`` ready rows and ``max_bytes`` of payloads (but at least one), in one snapshot."""
        ...

    def read_parked(self, stream: Stream, after: WorkKey | None, limit: int, max_bytes: int) -> Reading:
        """Parked HELD and RETRY rows of the stream, by id. With EVERY_LANE, of all lanes that have no hold of their
        own, by lane and id."""
        ...

    def holds(self, partition_nos: Sequence[int], *, drain_only: bool) -> Sequence[Hold]:
        """The holds of owned partitions; an operator may have changed their mode."""
        ...

    def signs(self, spans: Sequence[Span]) -> Signs:
        """One cheap look for an idle relay: one statement."""
        ...

    def stragglers(self, spans: Sequence[Span]) -> Sequence[int]:
        """Partitions with a ready row at or below ``after``, where none should be."""
        ...

    def move_due(self, tenures: Sequence[Tenure], limit: int) -> Mapping[int, int]:
        """Move due RETRY and SCHEDULED rows without a hold to ready; the lowest id moved, by partition."""
        ...

    def writers(self) -> frozenset[str] | None:
        """Transactions that are open now and may have drawn ids for events; None where that cannot be known."""
        ...

    def charge(self, tenure: Tenure, key: WorkKey, parked: bool) -> int:
        """Add one to the row's ``claims`` and return it, committed, before a suspect is sent alone."""
        ...

    def settle(self, settlement: OrderedSettlement) -> OrderedSettled:
        """Write all of it in one transaction, fenced by each partition's tenure."""
        ...


class OrderedStore(Ownership, OrderedQueue, Protocol):
    """What a partition-lease relay needs of a store."""

    relay_id: str

    def close(self) -> None:
        """Return connections."""
        ...
