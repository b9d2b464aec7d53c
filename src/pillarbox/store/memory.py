"""The in-memory twin of the row-lease store, for tests: the same promises, nothing durable, one process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from ..clock import Clock, SystemClock
from ..event.destination import Destination
from ..event.message import Message
from ..policy.lanes import lane_of, partition_of
from ..ports import Claim, Delivery, OrphanWork, Parked, Sent, Settled, Settlement, WorkKey
from .settle import MAX_ATTEMPTS, storable
from .tokens import Tokens

_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryReceipt(NamedTuple):
    """What was sent, by whom, under which token, and to where."""

    relay: str
    token: int
    partition: int | None
    offset: int | None


@dataclass(slots=True)
class _Ready:
    lane: int
    attempts: int = 0
    claims: int = 0
    leased_until: datetime = _NEVER
    owner: str = ""
    token: int = 0


class _Parked(NamedTuple):
    row: Parked
    due_at: datetime | None


@dataclass(slots=True)
class _Tables:
    lock: threading.Lock = field(default_factory=threading.Lock)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    events: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    ready: dict[WorkKey, _Ready] = field(default_factory=dict)
    parked: dict[WorkKey, _Parked] = field(default_factory=dict)
    receipts: dict[WorkKey, MemoryReceipt] = field(default_factory=dict)
    given_back: set[tuple[WorkKey, int]] = field(default_factory=set)


class MemoryStore:
    """A ports.WorkStore in memory. ``another()`` is a second relay on the same events. Safe between threads.

    >>> from pillarbox.event.message import Message
    >>> store = MemoryStore()
    >>> made = datetime(2026, 1, 1, tzinfo=UTC)
    >>> store.add(Message("id-1", "t", 1, None, None, "k", made, None, "text/plain", b"x", "orders", None))
    1
    >>> [delivery.message.payload for delivery in store.claim(10).deliveries]
    [b'x']
    """

    def __init__(self, clock: Clock | None = None, *, relay_id: str = "memory", lease: float = 60.0) -> None:
        self.relay_id = relay_id
        self.lease = lease
        self._clock = clock or SystemClock()
        self._tables = _Tables()
        self._tokens = Tokens()
        self._start = 0

    def another(self, relay_id: str, *, lease: float | None = None) -> MemoryStore:
        """The store of another relay, on the same events."""
        store = MemoryStore(self._clock, relay_id=relay_id, lease=self.lease if lease is None else lease)
        store._tables = self._tables
        return store

    # For tests ----------------------------------------------------------------------------------------------------

    def add(self, message: Message, more: Sequence[Destination] = ()) -> int:
        """Commit an event for its own destination and ``more``; returns its row id."""
        lane = lane_of(message.event_id if message.key is None else message.key)
        others = (message._replace(destination=one.name, routing_key=one.routing_key) for one in more)
        with self._tables.lock:
            number = next(self._tables.ids)
            self._tables.events[number] = (message, *others)
            for dest in range(1 + len(more)):
                self._tables.ready[WorkKey(partition_of(lane), number, dest)] = _Ready(lane)
        return number

    def forget_event(self, number: int) -> None:
        """Delete the event but not its work rows: they are orphans then."""
        with self._tables.lock:
            del self._tables.events[number]

    def ready_again(self, delivery: Delivery) -> None:
        """Put the work row of a sent delivery back, as an operator's hand might."""
        with self._tables.lock:
            self._tables.ready[delivery.key] = _Ready(delivery.lane)

    def states(self) -> dict[tuple[int, int], str]:
        """The state of each (event row id, destination): PENDING, PROCESSING, RETRY, DEAD or SENT."""
        now = self._clock.now()
        with self._tables.lock:
            found = {(key.id, key.dest): "SENT" for key in self._tables.receipts}
            found |= {(key.id, key.dest): one.row.state for key, one in self._tables.parked.items()}
            for key, row in self._tables.ready.items():
                found[key.id, key.dest] = "PROCESSING" if row.leased_until > now else "PENDING"
            return found

    @property
    def receipts(self) -> dict[WorkKey, MemoryReceipt]:
        """All receipts, by work key."""
        with self._tables.lock:
            return dict(self._tables.receipts)

    @property
    def parked(self) -> list[Parked]:
        """All parked rows, by work key."""
        with self._tables.lock:
            return [self._tables.parked[key].row for key in sorted(self._tables.parked)]

    # ports.WorkStore ----------------------------------------------------------------------------------------------

    def claim(self, limit: int) -> Claim:
        """See ports.Claims.claim."""
        token, now = self._tokens.next(), self._clock.now()
        deliveries: list[Delivery] = []
        orphans: list[OrphanWork] = []
        with self._tables.lock:
            free = [key for key, row in self._tables.ready.items() if row.leased_until <= now]
            free.sort(key=lambda key: (key.partition_no < self._start, key))
            taken = free[: max(limit, 0)]
            self._start = taken[-1].partition_no + 1 if taken and len(taken) == limit else 0
            for key in taken:
                row = self._tables.ready[key]
                row.leased_until = now + timedelta(seconds=self.lease)
                row.owner, row.token, row.claims = self.relay_id, token, row.claims + 1
                messages = self._tables.events.get(key.id, ())
                if key.dest < len(messages):
                    deliveries.append(Delivery(key, row.lane, row.attempts, row.claims, messages[key.dest]))
                else:
                    orphans.append(OrphanWork(key, row.lane, row.attempts, row.claims))
        return Claim(token, deliveries, orphans)

    def renew(self, token: int, keys: Sequence[WorkKey]) -> int:
        """See ports.Claims.renew."""
        until = self._clock.now() + timedelta(seconds=self.lease)
        with self._tables.lock:
            ours = [self._tables.ready[key] for key in keys if self._is_ours(key, token)]
            for row in ours:
                row.leased_until = until
            return len(ours)

    def move_due(self, limit: int) -> int:
        """See ports.Claims.move_due."""
        now = self._clock.now()
        with self._tables.lock:
            due = sorted(
                (one.due_at, key)
                for key, one in self._tables.parked.items()
                if one.row.state == "RETRY" and one.due_at is not None and one.due_at <= now
            )
            for _, key in due[: max(limit, 0)]:
                row = self._tables.parked.pop(key).row
                self._tables.ready[key] = _Ready(row.lane, row.attempts)
            return min(len(due), max(limit, 0))

    def settle(self, settlement: Settlement) -> Settled:
        """See ports.Settlements.settle."""
        token = settlement.token
        with self._tables.lock:
            sent = sum([self._settle_sent(one, token) for one in settlement.sent])
            parked = sum([self._settle_parked(one, token) for one in settlement.parked])
            back = sum([self._settle_back(key, token) for key in settlement.given_back])
            lost = [one.key for one in settlement.sent if not self._has_receipt(one.key, token)]
            lost += [one.key for one in settlement.parked if not self._is_parked(one)]
            lost += [key for key in settlement.given_back if (key, token) not in self._tables.given_back]
        return Settled(sent, parked, back, tuple(sorted(lost)))

    def close(self) -> None:
        """Nothing to return."""

    # Under the lock -----------------------------------------------------------------------------------------------

    def _is_ours(self, key: WorkKey, token: int) -> bool:
        row = self._tables.ready.get(key)
        return row is not None and row.owner == self.relay_id and row.token == token

    def _has_receipt(self, key: WorkKey, token: int) -> bool:
        receipt = self._tables.receipts.get(key)
        return receipt is not None and receipt.relay == self.relay_id and receipt.token == token

    def _is_parked(self, parked: Parked) -> bool:
        found = self._tables.parked.get(parked.key)
        return found is not None and found.row == _as_stored(parked)

    def _settle_sent(self, one: Sent, token: int) -> bool:
        if self._is_ours(one.key, token):
            self._tables.receipts[one.key] = MemoryReceipt(self.relay_id, token, one.partition, one.offset)
            del self._tables.ready[one.key]
        return self._has_receipt(one.key, token)

    def _settle_parked(self, one: Parked, token: int) -> bool:
        if self._is_ours(one.key, token):
            del self._tables.ready[one.key]
            due_at = None if one.due_in is None else self._clock.now() + timedelta(seconds=one.due_in)
            self._tables.parked[one.key] = _Parked(_as_stored(one), due_at)
        return self._is_parked(one)

    def _settle_back(self, key: WorkKey, token: int) -> bool:
        if self._is_ours(key, token):
            row = self._tables.ready[key]
            row.owner, row.leased_until, row.claims = "", _NEVER, max(row.claims - 1, 0)
            self._tables.given_back.add((key, token))
        return (key, token) in self._tables.given_back


def _as_stored(parked: Parked) -> Parked:
    return parked._replace(error=storable(parked.error), attempts=min(parked.attempts, MAX_ATTEMPTS))
