"""The protocols between the parts, and the values that cross them. No I/O, no database or broker client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from .event.message import Message

# Outcomes: what a publisher knows about one message ---------------------------------------------------------------


class Confirmed(NamedTuple):
    """The broker has it at the strongest level asked for. RabbitMQ has no partition and offset."""

    partition: int | None = None
    offset: int | None = None


class Rejected(NamedTuple):
    """The broker (or its client) refused this very message, and said why. It is not in the broker.

    ``permanent``: trying again cannot help (too large, unroutable, not authorised).
    """

    reason: str
    permanent: bool


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


Outcome = Confirmed | Rejected | Unavailable | Unknown


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
