"""The protocols between the parts, and the values that cross them. No I/O, no database or broker client."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, NamedTuple, Protocol

from .event.message import Message

# Outcomes: what a publisher knows about one message ---------------------------------------------------------------


class Confirmed(NamedTuple):
    """The broker has it at the strongest level asked for. RabbitMQ has no partition and offset."""

    partition: int | None = None
    offset: int | None = None


class Rejected(NamedTuple):
    """The broker (or its client) refused this very message, and said why. It is not in the broker.

    ``permanent``: trying again cannot help (too large, unroutable, not authorised). ``of_destination``: it would
    refuse every message for this destination (no such topic or exchange).
    """

    reason: str
    permanent: bool
    of_destination: bool = False


class Unavailable(NamedTuple):
    """It was not sent, because the broker or this destination could not be reached. Nobody's fault but the outage's.

    ``broker_answers`` True: only this destination is in trouble, and events for others may go on.
    """

    reason: str
    broker_answers: bool = False


class Unknown(NamedTuple):
    """It was sent and no answer came: the broker may have it.

    ``destination_healthy`` False: the destination itself is in trouble (no leader, too few replicas, connection
    lost), so that the event is not charged with a failed attempt. ``broker_answers`` True: it is only this destination.
    """

    reason: str
    destination_healthy: bool
    broker_answers: bool = False


class Withheld(NamedTuple):
    """It was not sent, because an earlier message of its stream was not confirmed, or because time ran out while the
    broker was still confirming others. Only where order is asked for."""

    reason: str


Outcome = Confirmed | Rejected | Unavailable | Unknown | Withheld


# Work -------------------------------------------------------------------------------------------------------------


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


# Ordered work -----------------------------------------------------------------------------------------------------

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


# Publishing -------------------------------------------------------------------------------------------------------


class PublisherCapabilities(NamedTuple):
    """What a publisher declares about itself."""

    scheme: str
    pipelined_order: bool  # a batch reaches one destination and key in the order of the list
    positions: bool  # Confirmed carries partition and offset
    headers: bool


class Publisher(Protocol):
    """A connection to one broker. ``publish`` never raises for a bad message: every message has its outcome."""

    capabilities: PublisherCapabilities

    def open(self) -> None:
        """Connect, or raise BrokerUnavailable (PB-005), AccessRefused (PB-008) or MissingDriver (PB-003)."""
        ...

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send all, pipelined, and wait for each one's own acknowledgement, at most the deadline given at construction.

        Returns one outcome per message in the same order. Reconnects by itself; while it cannot: Unavailable.
        """
        ...

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """The same, but gapless in each stream, which is one destination and key (a message without key is its own).

        No message reaches the broker before all earlier ones of its stream are there: within the call, and over calls
        as long as the caller sends again, first, what was not confirmed. What is not sent for that reason is Withheld.
        """
        ...

    def close(self) -> None:
        """Close within a few seconds, whatever the broker does."""
        ...


# Consuming --------------------------------------------------------------------------------------------------------


class Incoming(NamedTuple):
    """One message as a source delivered it. ``position`` is the source's own handle for acknowledging."""

    source: str
    headers: dict[str, str]
    body: bytes
    key: str | None
    position: object
    redelivered: bool


class Source(Protocol):
    """A subscription to topics or queues of one broker, used by one thread."""

    def open(self) -> None:
        """Connect and subscribe, or raise BrokerUnavailable, AccessRefused, SourceMissing or MissingDriver."""
        ...

    def poll(self, timeout: float, limit: int) -> list[Incoming]:
        """Up to ``limit`` messages, waiting at most ``timeout`` seconds for the first. Keeps the connection alive.

        ``limit`` 0 delivers nothing and waits the whole ``timeout``. While the broker is away it waits, too, and
        reconnects.
        """
        ...

    def holds(self, incoming: Incoming) -> bool:
        """False once the broker took the message back (partition revoked, channel lost): it comes again."""
        ...

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        """Tell the broker that these are finished (commit offsets, ack). Called only after the database commit."""
        ...

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        """Put a copy, with its headers, ``reason`` and ``attempts``, into the dead-letter topic or queue, confirmed.

        The caller acknowledges the original afterwards. Raises BrokerUnavailable when it is not safely there.
        """
        ...

    def close(self) -> None:
        """Leave the group or cancel the subscription; unacknowledged messages come again elsewhere."""
        ...


# Reading ----------------------------------------------------------------------------------------------------------


class Overview(NamedTuple):
    """Counts by state and the age of the oldest event that is not confirmed, in seconds by the database's clock."""

    counts: dict[str, int]
    oldest_age: float | None


class Backlog(NamedTuple):
    """What waits in one outbox, for metrics: deliveries by state, holds by mode, living relays, unowned partitions.

    ``oldest_age``: seconds since the oldest delivery that is neither sent nor given up was recorded; None: none waits.
    """

    states: Mapping[str, int]
    holds: Mapping[str, int]
    oldest_age: float | None
    relays: int
    unowned: int


class DeadLetter(NamedTuple):
    """An event that was given up."""

    event_id: str
    event_type: str
    destination: str
    dest: int
    attempts: int
    error: str
    error_at: datetime
    replays: int
