"""Settling a round in memory: what ports.OrderedSettlement means, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..ports import Aside, Hold, OrderedSettled, OrderedSettlement, Sent, SentParked, Stream, WorkKey
from .memory import MemoryReceipt
from .memory_outbox import HoldRow, ParkedRow, ReadyRow, Tables
from .settle import MAX_ATTEMPTS, storable


@dataclass(slots=True)
class MemorySettlement:
    """One settlement, inside the lock. ``ours``: tokens of the partitions that are still the relay's."""

    tables: Tables
    relay_id: str
    ours: Mapping[int, int]
    now: datetime
    vanished: list[WorkKey] = field(default_factory=list)
    gone: set[tuple[int, int]] = field(default_factory=set)  # heads that are not there: their holds are old news

    def write(self, settlement: OrderedSettlement) -> OrderedSettled:
        """Write what belongs to partitions that are ours."""
        ready, parked = self.tables.ready, self.tables.parked
        sent = sum([self._sent(one, ready) for one in settlement.sent if self._mine(one.key)])
        sent += sum([self._sent(one, parked) for one in settlement.sent_parked if self._mine(one.key)])
        aside = sum([self._aside(one, ready) for one in settlement.aside if self._mine(one.key)])
        aside += sum([self._aside(one, parked) for one in settlement.aside_parked if self._mine(one.key)])
        for hold in settlement.holds:
            if hold.stream.partition_no in self.ours and (hold.stream.partition_no, hold.head_id) not in self.gone:
                self._hold(hold)
        kept = [one for one in settlement.freed if one.partition_no in self.ours and not self._free(one)]
        return OrderedSettled(sent, aside, (), tuple(sorted(self.vanished)), tuple(kept))

    def _mine(self, key: WorkKey) -> bool:
        return key.partition_no in self.ours

    def _sent(self, one: Sent | SentParked, rows: dict[WorkKey, ReadyRow] | dict[WorkKey, ParkedRow]) -> bool:
        """True when it counts as sent: its row was there, or our own receipt tells of an earlier attempt."""
        token = self.ours[one.key.partition_no]
        there = rows.pop(one.key, None) is not None
        before = self.tables.receipts.get(one.key)
        if not there and before is not None and (before.relay, before.token) == (self.relay_id, token):
            return True
        self.tables.receipts[one.key] = MemoryReceipt(self.relay_id, token, one.partition, one.offset)
        if not there:
            self.vanished.append(one.key)
        return there

    def _aside(self, one: Aside, rows: dict[WorkKey, ReadyRow] | dict[WorkKey, ParkedRow]) -> bool:
        """True when it lies where it should: moved there now, or by an earlier attempt."""
        due_at = None if one.due_in is None else self.now + timedelta(seconds=one.due_in)
        row = ParkedRow(one.stream, one.state, due_at, min(one.attempts, MAX_ATTEMPTS), storable(one.error))
        before = rows.get(one.key)
        if before is not None and not (isinstance(before, ParkedRow) and before.state == "BURIED"):
            del rows[one.key]
            self.tables.parked[one.key] = row
            return True
        self.gone.add((one.key.partition_no, one.key.id))
        found = self.tables.parked.get(one.key)
        if found is not None and (found.state, found.attempts, found.error) == (row.state, row.attempts, row.error):
            return True
        self.vanished.append(one.key)
        return False

    def _hold(self, one: Hold) -> None:
        due_at = None if one.due_in is None else self.now + timedelta(seconds=one.due_in)
        self.tables.holds[one.stream] = HoldRow(one.mode, one.head_id, due_at, one.destination, storable(one.reason))

    def _free(self, stream: Stream) -> bool:
        if self.tables.waiting(stream):
            return False
        self.tables.holds.pop(stream, None)
        return True
