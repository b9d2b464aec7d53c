"""An outbox in memory: what the tables hold, and the transactions that write to it. Nothing durable, one process.

:class:`.memory_ordered.MemoryPartitionStore` works on it; together they are the executable specification of
:class:`..ports.OrderedStore`, which tests hold the databases to.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from ..clock import Clock, SystemClock
from ..event.destination import Destination
from ..event.message import Message
from ..policy.lanes import PARTITIONS, lane_of, partition_of
from ..ports import EVERY_LANE, Stream, WorkKey
from .memory import MemoryReceipt

NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)

Mode = Literal["backoff", "dead", "away", "drain"]


@dataclass(slots=True)
class ReadyRow:
    """A row of outbox_ready, as far as the partition lease uses it."""

    lane: int
    attempts: int = 0
    claims: int = 0


@dataclass(slots=True)
class ParkedRow:
    """A row of outbox_parked; ``due_at`` is None for HELD and DEAD."""

    stream: Stream
    state: str
    due_at: datetime | None
    attempts: int
    error: str
    claims: int = 0


@dataclass(slots=True)
class HoldRow:
    """A row of outbox_lane."""

    mode: Mode
    head_id: int
    due_at: datetime | None
    destination: str
    reason: str


@dataclass(slots=True)
class PartitionRow:
    """A row of outbox_partition; ``lease`` in seconds: an end further away than this is impossible."""

    owner: str = ""
    token: int = 0
    nonce: int = 0
    leased_until: datetime = NEVER
    lease: float = 0.0
    low_id: int = 0
    handed_to: int = 0
    careful_to: int = 0
    crashes: int = 0

    def is_free(self, now: datetime) -> bool:
        """Released, expired, or with an end that no lease can have (a clock was set back, a hand wrote it)."""
        return not self.owner or self.leased_until <= now or self.leased_until > now + timedelta(seconds=self.lease)


class RelayRow(NamedTuple):
    """A row of outbox_relay."""

    seen_until: datetime
    lease: Literal["row", "partition"]


@dataclass(slots=True)
class Tables:
    """All rows, and the lock that makes a transaction of whatever is done while it is held."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    nonces: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    events: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    lanes: dict[int, int] = field(default_factory=dict)  # of events, also of those deleted since
    ready: dict[WorkKey, ReadyRow] = field(default_factory=dict)
    parked: dict[WorkKey, ParkedRow] = field(default_factory=dict)
    holds: dict[Stream, HoldRow] = field(default_factory=dict)
    partitions: dict[int, PartitionRow] = field(default_factory=dict)
    relays: dict[str, RelayRow] = field(default_factory=dict)
    receipts: dict[WorkKey, MemoryReceipt] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)  # transactions that drew ids and have not ended

    def hold_on(self, stream: Stream) -> HoldRow | None:
        """The hold of a stream: its own, or that of its whole destination."""
        return self.holds.get(stream) or self.holds.get(stream._replace(lane=EVERY_LANE))

    def waiting(self, stream: Stream) -> list[tuple[WorkKey, ParkedRow]]:
        """What is parked under a hold as HELD or RETRY; under EVERY_LANE, of lanes that have no hold of their own."""
        found = [(key, row) for key, row in self.parked.items() if row.state in ("HELD", "RETRY")]
        if stream.lane != EVERY_LANE:
            return sorted(((k, r) for k, r in found if r.stream == stream), key=lambda one: one[0])
        mine = [(k, r) for k, r in found if r.stream._replace(lane=EVERY_LANE) == stream and r.stream not in self.holds]
        return sorted(mine, key=lambda one: (one[1].stream.lane, one[0]))

    def due(self, partition_nos: Collection[int], now: datetime) -> list[tuple[WorkKey, ParkedRow]]:
        """What may leave the parked table now, the longest due first: nothing holds it."""
        found = [
            (row.due_at, key, row)
            for key, row in self.parked.items()
            if key.partition_no in partition_nos and row.state in ("RETRY", "SCHEDULED")
            if row.due_at is not None and row.due_at <= now and self.hold_on(row.stream) is None
        ]
        return [(key, row) for _, key, row in sorted(found, key=lambda one: one[:2])]

    def message(self, key: WorkKey) -> Message | None:
        """The message of a work row; None for an orphan."""
        messages = self.events.get(key.id, ())
        return messages[key.dest] if key.dest < len(messages) else None


class MemoryTransaction:
    """A writer's transaction: ids are drawn by ``add``, seen by others after ``commit``."""

    def __init__(self, tables: Tables, clock: Clock, partitions: int, name: str) -> None:
        self.name = name
        self._tables = tables
        self._clock = clock
        self._partitions = partitions
        self._written: list[tuple[int, tuple[Message, ...], float | None]] = []

    def add(
        self, messages: Sequence[Message], more: Sequence[Destination] = (), *, available_in: float | None = None
    ) -> list[int]:
        """Write events for their own destination and ``more``; returns their row ids."""
        with self._tables.lock:
            numbers = [next(self._tables.ids) for _ in messages]
            if numbers:
                self._tables.open[self.name] = numbers[0]
        for number, message in zip(numbers, messages, strict=True):
            others = (message._replace(destination=one.name, routing_key=one.routing_key) for one in more)
            self._written.append((number, (message, *others), available_in))
        return numbers

    def commit(self) -> None:
        """Let others see it."""
        with self._tables.lock:
            for number, messages, available_in in self._written:
                self._insert(number, messages, available_in)
            self.rollback()

    def rollback(self) -> None:
        """Forget it; its ids are not used again."""
        with self._tables.lock:
            self._written = []
            self._tables.open.pop(self.name, None)

    def _insert(self, number: int, messages: tuple[Message, ...], available_in: float | None) -> None:
        first = messages[0]
        lane = lane_of(first.event_id if first.key is None else first.key)
        partition_no = partition_of(lane, self._partitions)
        self._tables.events[number], self._tables.lanes[number] = messages, lane
        for dest, message in enumerate(messages):
            key = WorkKey(partition_no, number, dest)
            if available_in is None:
                self._tables.ready[key] = ReadyRow(lane)
                continue
            stream = Stream(partition_no, lane, lane_of(message.destination))
            due_at = self._clock.now() + timedelta(seconds=available_in)
            self._tables.parked[key] = ParkedRow(stream, "SCHEDULED", due_at, 0, "")


class MemoryOutbox:
    """The shared state that stores of relays work on. Safe between threads.

    >>> made = datetime(2026, 1, 1, tzinfo=UTC)
    >>> outbox = MemoryOutbox()
    >>> outbox.add([Message("id-1", "t", 1, None, None, "k", made, None, "text/plain", b"x", "orders", None)])
    [1]
    >>> outbox.states()
    {(1, 0): 'PENDING'}
    """

    def __init__(self, clock: Clock | None = None, *, partitions: int = PARTITIONS) -> None:
        self.clock = clock or SystemClock()
        self.partitions = partitions
        self.tables = Tables()
        self._names = itertools.count(1)
        for number in range(partitions):
            self.tables.partitions[number] = PartitionRow()

    # Writing ------------------------------------------------------------------------------------------------------

    def begin(self) -> MemoryTransaction:
        """A transaction that stays open until its ``commit`` or ``rollback``."""
        return MemoryTransaction(self.tables, self.clock, self.partitions, f"writer-{next(self._names)}")

    @contextmanager
    def transaction(self) -> Iterator[MemoryTransaction]:
        """Committed at the end of the block, rolled back when that raises."""
        transaction = self.begin()
        try:
            yield transaction
        except BaseException:
            transaction.rollback()
            raise
        transaction.commit()

    def add(
        self, messages: Sequence[Message], more: Sequence[Destination] = (), *, available_in: float | None = None
    ) -> list[int]:
        """Commit events; returns their row ids. ``available_in`` seconds from now they may go."""
        with self.transaction() as transaction:
            return transaction.add(messages, more, available_in=available_in)

    def forget_event(self, number: int) -> None:
        """Delete the event but not its work rows: they are orphans then."""
        with self.tables.lock:
            del self.tables.events[number]

    # An operator's hand -------------------------------------------------------------------------------------------

    def replay(self, number: int, dest: int = 0) -> None:
        """Let a dead event go again, attempts from zero: due now, and if it is the head of a hold, that drains."""
        with self.tables.lock:
            _, row = self._dead(number, dest)
            row.state, row.due_at, row.attempts, row.claims = "RETRY", self.clock.now(), 0, 0
            self._go_on(row.stream, number)

    def bury(self, number: int, dest: int = 0) -> None:
        """Give a dead event up for good; a hold on its stream drains then."""
        with self.tables.lock:
            _, row = self._dead(number, dest)
            row.state = "BURIED"
            self._go_on(row.stream, number)

    def drain(self, stream: Stream) -> None:
        """Let what waits under a hold go, whatever happened to its head."""
        with self.tables.lock:
            self.tables.holds[stream].mode = "drain"

    def _go_on(self, stream: Stream, head_id: int) -> None:
        hold = self.tables.hold_on(stream)
        if hold is not None and hold.head_id == head_id:
            hold.mode, hold.due_at = "drain", None

    def _dead(self, number: int, dest: int) -> tuple[WorkKey, ParkedRow]:
        return next(
            (key, row)
            for key, row in self.tables.parked.items()
            if (key.id, key.dest, row.state) == (number, dest, "DEAD")
        )

    # Looking ------------------------------------------------------------------------------------------------------

    def states(self) -> dict[tuple[int, int], str]:
        """The state of each (event row id, destination): PENDING, SENT, or what it is parked as."""
        with self.tables.lock:
            found = {(key.id, key.dest): "SENT" for key in self.tables.receipts}
            found |= {(key.id, key.dest): row.state for key, row in self.tables.parked.items()}
            return found | {(key.id, key.dest): "PENDING" for key in self.tables.ready}

    def receipts(self) -> dict[tuple[int, int], MemoryReceipt]:
        """All receipts, by event row id and destination."""
        with self.tables.lock:
            return {(key.id, key.dest): receipt for key, receipt in self.tables.receipts.items()}

    def parked(self) -> dict[tuple[int, int], tuple[str, int, str]]:
        """State, attempts and error of all parked rows, by event row id and destination."""
        with self.tables.lock:
            return {(k.id, k.dest): (row.state, row.attempts, row.error) for k, row in self.tables.parked.items()}
