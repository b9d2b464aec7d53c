"""The in-memory store of the partition lease: ports.OrderedStore as an executable specification, for tests.

Each call is one transaction, made by the lock of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypeVar

from ..errors import LeaseMismatch
from ..ports import (
    Delivery,
    Fleet,
    Hold,
    OrderedSettled,
    OrderedSettlement,
    OrphanWork,
    Partition,
    PartitionState,
    Progress,
    Reading,
    Signs,
    Span,
    Stream,
    Tenure,
    WorkKey,
)
from .memory_outbox import NEVER, MemoryOutbox, PartitionRow, ReadyRow, RelayRow
from .memory_settlement import MemorySettlement

Fault = Callable[[str, Literal["before", "after"]], None]
"""Called with the name of each method before and after its transaction; what it raises, the method raises."""

R = TypeVar("R")
_Row = tuple[WorkKey, int, int, int]  # key, lane, attempts, claims


class MemoryPartitionStore:
    """A ports.OrderedStore on a MemoryOutbox. A crash is to forget it. ``lease`` in seconds.

    ``fault`` lets tests cut the connection: raised "after", the transaction is committed and its answer lost.
    ``knows_writers`` False: as on a server where the relay may not see the transactions of others.

    >>> store = MemoryPartitionStore(MemoryOutbox(), relay_id="a")
    >>> store.enter(10.0)
    >>> [partition.low_id for partition in store.acquire([0, 1])]
    [0, 0]
    """

    def __init__(
        self,
        outbox: MemoryOutbox,
        *,
        relay_id: str = "memory",
        lease: float = 60.0,
        fault: Fault | None = None,
        knows_writers: bool = True,
    ) -> None:
        self.relay_id = relay_id
        self.lease = lease
        self.fault = fault
        self.knows_writers = knows_writers
        self.outbox = outbox
        self._tables = outbox.tables

    def _call(self, name: str, work: Callable[[], R]) -> R:
        if self.fault is not None:
            self.fault(name, "before")
        with self._tables.lock:
            result = work()
        if self.fault is not None:
            self.fault(name, "after")
        return result

    # ports.Ownership ----------------------------------------------------------------------------------------------

    def enter(self, seconds: float) -> None:
        """See ports.Ownership.enter."""
        self._call("enter", lambda: self._enter(seconds))

    def stay(self, seconds: float, tenures: Sequence[Tenure]) -> Sequence[Tenure]:
        """See ports.Ownership.stay."""
        return self._call("stay", lambda: self._stay(seconds, tenures))

    def leave(self) -> None:
        """See ports.Ownership.leave."""
        self._call("leave", lambda: self._tables.relays.pop(self.relay_id, None))

    def fleet(self) -> Fleet:
        """See ports.Ownership.fleet."""
        return self._call("fleet", lambda: Fleet(self._living(), [*self._states()]))

    def acquire(self, partition_nos: Sequence[int]) -> Sequence[Partition]:
        """See ports.Ownership.acquire."""
        now = self.outbox.clock.now()
        rows = self._tables.partitions
        return self._call(
            "acquire", lambda: [self._take(n, rows[n]) for n in sorted(set(partition_nos)) if rows[n].is_free(now)]
        )

    def release(self, progress: Sequence[Progress]) -> None:
        """See ports.Ownership.release."""
        self._call("release", lambda: [*map(self._let_go, progress)])

    # ports.OrderedQueue -------------------------------------------------------------------------------------------

    def read(self, spans: Sequence[Span], limit: int, max_bytes: int, held: Collection[int]) -> Reading:
        """See ports.OrderedQueue.read."""

        def rows() -> list[_Row]:
            after = {span.partition_no: span.after for span in spans}
            found = [key for key in self._tables.ready if key.id > after.get(key.partition_no, key.id)]
            mine = ((key, self._tables.ready[key]) for key in sorted(found) if self._owns(key.partition_no))
            return [(key, row.lane, row.attempts, row.claims) for key, row in mine]

        return self._call("read", lambda: self._reading(rows(), limit, max_bytes, frozenset(held)))

    def read_parked(self, stream: Stream, after: WorkKey | None, limit: int, max_bytes: int) -> Reading:
        """See ports.OrderedQueue.read_parked."""

        def rows() -> Iterator[_Row]:
            start = None if after is None else (self._tables.lanes[after.id], after)
            for key, row in self._tables.waiting(stream) if self._owns(stream.partition_no) else ():
                if start is None or (row.stream.lane, key) > start:
                    yield key, row.stream.lane, row.attempts, row.claims

        return self._call("read_parked", lambda: self._reading([*rows()], limit, max_bytes, frozenset()))

    def holds(self, partition_nos: Sequence[int], *, drain_only: bool) -> Sequence[Hold]:
        """See ports.OrderedQueue.holds."""
        wanted = set(partition_nos)
        return self._call(
            "holds", lambda: [hold for hold in self._holds(wanted) if hold.mode == "drain" or not drain_only]
        )

    def signs(self, spans: Sequence[Span]) -> Signs:
        """See ports.OrderedQueue.signs."""

        def look() -> Signs:
            after, now = {span.partition_no: span.after for span in spans}, self.outbox.clock.now()
            ready = any(key.id > after.get(key.partition_no, key.id) for key in self._tables.ready)
            drain = any(hold.mode == "drain" for hold in self._holds(set(after)))
            return Signs(ready, bool(self._tables.due(set(after), now)), drain, len(self._living()))

        return self._call("signs", look)

    def stragglers(self, spans: Sequence[Span]) -> Sequence[int]:
        """See ports.OrderedQueue.stragglers."""
        low = {span.partition_no: span.after for span in spans}
        ready = self._tables.ready
        return self._call(
            "stragglers", lambda: sorted({k.partition_no for k in ready if k.id <= low.get(k.partition_no, -1)})
        )

    def move_due(self, tenures: Sequence[Tenure], limit: int) -> Mapping[int, int]:
        """See ports.OrderedQueue.move_due. The partition's ``low_id`` falls below what is moved at once."""
        return self._call("move_due", lambda: self._move_due(tenures, limit))

    def writers(self) -> frozenset[str] | None:
        """See ports.OrderedQueue.writers."""
        return self._call("writers", lambda: frozenset(self._tables.open) if self.knows_writers else None)

    def charge(self, tenure: Tenure, key: WorkKey, parked: bool) -> int:
        """See ports.OrderedQueue.charge. 0 when the partition is lost or the row is gone: then it must not be sent."""

        def add_one() -> int:
            row = (self._tables.parked if parked else self._tables.ready).get(key)
            if row is None or not self._is_ours(tenure):
                return 0
            row.claims += 1
            return row.claims

        return self._call("charge", add_one)

    def settle(self, settlement: OrderedSettlement) -> OrderedSettled:
        """See ports.OrderedQueue.settle."""

        def write() -> OrderedSettled:
            lost = [one.tenure for one in settlement.progress if not self._is_ours(one.tenure)]
            kept = [one for one in settlement.progress if one.tenure not in lost]
            for progress in kept:
                self._advance(progress)
                self._renew(self._tables.partitions[progress.tenure.partition_no])
            ours = {one.tenure.partition_no: one.tenure.token for one in kept}
            written = MemorySettlement(self._tables, self.relay_id, ours, self.outbox.clock.now()).write(settlement)
            return written._replace(lost=tuple(lost))

        return self._call("settle", write)

    def close(self) -> None:
        """Nothing to return."""

    # Under the lock: ownership ------------------------------------------------------------------------------------

    def _enter(self, seconds: float) -> None:
        now = self.outbox.clock.now()
        others = [name for name, row in self._tables.relays.items() if row.lease == "row" and row.seen_until > now]
        if others:
            raise LeaseMismatch(f"Relays that lease rows are at work: {', '.join(sorted(others))}.")
        for number in range(self.outbox.partitions):
            self._tables.partitions.setdefault(number, PartitionRow())
        self._register(seconds)

    def _register(self, seconds: float) -> None:
        until = self.outbox.clock.now() + timedelta(seconds=seconds)
        self._tables.relays[self.relay_id] = RelayRow(until, "partition")

    def _stay(self, seconds: float, tenures: Sequence[Tenure]) -> Sequence[Tenure]:
        self._register(seconds)
        for tenure in tenures:
            if self._is_ours(tenure):
                self._renew(self._tables.partitions[tenure.partition_no])
        return [tenure for tenure in tenures if not self._is_ours(tenure)]

    def _living(self) -> list[str]:
        now = self.outbox.clock.now()
        return sorted(name for name, row in self._tables.relays.items() if row.seen_until > now)

    def _states(self) -> Iterator[PartitionState]:
        now = self.outbox.clock.now()
        for number, row in sorted(self._tables.partitions.items()):
            free = row.is_free(now)
            yield PartitionState(number, row.owner, free, 0.0 if free else (row.leased_until - now).total_seconds())

    def _take(self, number: int, row: PartitionRow) -> Partition:
        last_event = max(self._tables.events, default=0)
        if row.owner and row.handed_to:  # not released, with events on their way: its owner crashed, or lost it
            row.crashes += 1
            row.careful_to = max(row.careful_to, min(row.handed_to, last_event))
        row.handed_to = 0
        row.low_id = row.low_id if row.low_id <= last_event else 0  # ids are used again after a restore
        row.owner, row.token, row.nonce = self.relay_id, row.token + 1, next(self._tables.nonces)
        self._renew(row)
        tenure = Tenure(number, row.token, row.nonce)
        return Partition(tenure, row.low_id, row.careful_to, row.crashes, [*self._holds({number})])

    def _let_go(self, progress: Progress) -> None:
        if self._is_ours(progress.tenure):
            self._advance(progress)
            row = self._tables.partitions[progress.tenure.partition_no]
            row.owner, row.leased_until = "", NEVER

    def _owns(self, partition_no: int) -> bool:
        row = self._tables.partitions.get(partition_no)
        return row is not None and row.owner == self.relay_id

    def _is_ours(self, tenure: Tenure) -> bool:
        row = self._tables.partitions.get(tenure.partition_no)
        return row is not None and (row.owner, row.token, row.nonce) == (self.relay_id, tenure.token, tenure.nonce)

    def _renew(self, row: PartitionRow) -> None:
        row.leased_until, row.lease = self.outbox.clock.now() + timedelta(seconds=self.lease), self.lease

    def _advance(self, progress: Progress) -> None:
        row = self._tables.partitions[progress.tenure.partition_no]
        row.low_id, row.handed_to = progress.low_id, progress.handed_to
        row.careful_to, row.crashes = progress.careful_to, progress.crashes

    # Under the lock: the queue ------------------------------------------------------------------------------------

    def _reading(self, rows: list[_Row], limit: int, max_bytes: int, held: frozenset[int]) -> Reading:
        deliveries: list[Delivery] = []
        orphans: list[OrphanWork] = []
        taken = size = 0
        for key, lane, attempts, claims in rows[:limit]:
            message = self._tables.message(key)
            if message is not None and lane in held:
                message = message._replace(payload=b"")
            size += 0 if message is None else len(message.payload)
            if taken and size > max_bytes:
                break
            taken += 1
            if message is None:
                orphans.append(OrphanWork(key, lane, attempts, claims))
            else:
                deliveries.append(Delivery(key, lane, attempts, claims, message))
        return Reading(deliveries, orphans, taken < len(rows))

    def _holds(self, partition_nos: Collection[int]) -> Iterable[Hold]:
        now = self.outbox.clock.now()
        for stream, row in sorted(self._tables.holds.items(), key=lambda one: one[0]):
            if stream.partition_no in partition_nos:
                due_in = None if row.due_at is None else max(0.0, (row.due_at - now).total_seconds())
                yield Hold(stream, row.mode, row.head_id, due_in, row.destination, row.reason)

    def _move_due(self, tenures: Sequence[Tenure], limit: int) -> dict[int, int]:
        lowest: dict[int, int] = {}
        mine = {one.partition_no for one in tenures if self._is_ours(one)}
        for key, row in self._tables.due(mine, self.outbox.clock.now())[:limit]:
            del self._tables.parked[key]
            self._tables.ready.setdefault(key, ReadyRow(row.stream.lane, row.attempts, row.claims))
            lowest[key.partition_no] = min(key.id, lowest.get(key.partition_no, key.id))
        for number, first in lowest.items():
            partition = self._tables.partitions[number]
            partition.low_id = min(partition.low_id, first - 1)
        return lowest
