"""Recording the outcomes of one round in one transaction, fenced by each partition's owner, token and nonce.

The fast way assumes that every partition is still ours and every row still there. Only when the number of rows shows
that this is not so, or a receipt is there already, all is undone and done again the slow way, which finds out row by
row. Lock order: partition, lane, ready and parked, receipt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError

from ...ports import (
    Aside,
    Hold,
    OrderedSettled,
    OrderedSettlement,
    Parked,
    Progress,
    Sent,
    SentParked,
    Stream,
    Tenure,
    WorkKey,
)
from ..raw import fetch, in_parts
from ..settle import MAX_ATTEMPTS, storable
from ..workrows import Fence, WorkRows, work_rows
from . import freeing
from .kept import Database
from .removing import AtOnce
from .statements import LANES, PARKED, READY, Key, Receipt, Renewal, Statements

T = TypeVar("T")
_IDS_PER_STATEMENT: Final = 1_000


class _NotAsExpected(Exception):
    """Something was lost or gone: the transaction must be rolled back."""


@dataclass(frozen=True, slots=True)
class Settling:
    """Settlements of one relay."""

    dialect: str
    statements: Statements
    owner: str
    lease: float
    at_once: AtOnce | None = None

    def settle(self, database: Database, settlement: OrderedSettlement) -> OrderedSettled:
        """See ports.OrderedQueue.settle."""
        round_ = _Round.of(settlement)
        try:
            if (
                round_.only_sent
                and self.at_once is None
                and database.read(lambda connection: self._in_one_statement(connection, round_))
            ):
                return OrderedSettled(len(round_.sent), 0)
            return database.write(lambda connection: self._all(connection, round_))
        except (_NotAsExpected, DataError, IntegrityError):  # DataError: PostgreSQL's division by zero
            return database.write(lambda connection: self._what_is_ours(connection, round_))

    @property
    def _renewal(self) -> Renewal:
        return Renewal(self.owner, self.lease)

    def _in_one_statement(self, connection: Connection, round_: _Round) -> bool:
        return self.statements.settle_sent(connection, self._renewal, round_.progress, round_.sent)

    def _all(self, connection: Connection, round_: _Round) -> OrderedSettled:
        do = self.statements
        _expect(do.advance(connection, self._renewal, round_.progress), len(round_.progress))
        self._write_holds(connection, round_)
        ready, parked = round_.ready_keys(), round_.parked_keys()
        _expect(len(self._skipped(connection, round_)), 0)
        _expect(do.delete(connection, READY, ready), len(ready))
        _expect(do.delete(connection, PARKED, parked), len(parked))
        do.park(connection, [*round_.aside, *round_.aside_parked])
        do.add_receipts(connection, self.owner, self._needed(connection, round_.receipts()), again=False)
        kept = freeing.free(connection, do, round_.freed)
        sent, aside = len(round_.sent) + len(round_.sent_parked), len(round_.aside) + len(round_.aside_parked)
        return OrderedSettled(sent, aside, kept=tuple(kept))

    def _what_is_ours(self, connection: Connection, round_: _Round) -> OrderedSettled:
        do = self.statements
        lost = self._lost(connection, round_.progress)
        ours = round_.without({one.partition_no for one in lost})
        self._lock_holds(connection, ours, [one.stream for one in ours.holds])
        ready = do.find(connection, READY, ours.ready_keys())
        parked = do.find(connection, PARKED, ours.parked_keys()) - self._skipped(connection, ours)
        there = _There(ready, parked)
        do.hold(connection, there.holds_of(ours))
        before = self._settled_before(connection, ours, there)
        do.delete(connection, READY, sorted(ready))
        do.delete(connection, PARKED, sorted(parked))
        do.park(connection, [*filter(there.ready_row, ours.aside), *filter(there.parked_aside, ours.aside_parked)])
        new = [one for one in ours.receipts() if one[:2] not in before]
        do.add_receipts(connection, self.owner, self._needed(connection, new), again=True)
        kept = freeing.free(connection, do, ours.freed)
        return _report(ours, there, before, lost, kept)

    def _needed(self, connection: Connection, receipts: list[Receipt]) -> list[Receipt]:
        return receipts if self.at_once is None else self.at_once.remove(connection, receipts)

    def _write_holds(self, connection: Connection, round_: _Round) -> None:
        self._lock_holds(connection, round_, ())
        self.statements.hold(connection, round_.holds)

    def _lock_holds(self, connection: Connection, round_: _Round, more: Sequence[Stream]) -> None:
        """Before rows of the lane: an operator does it in that order, too."""
        if streams := {*round_.freed, *more}:
            self.statements.find(connection, LANES, sorted(tuple(stream) for stream in streams))

    def _skipped(self, connection: Connection, round_: _Round) -> set[Key]:
        """Parked rows that failed, and that an operator buried while they were tried: they stay buried."""
        keys = {_parked_key(one.key, one.stream.lane) for one in round_.aside_parked}
        if not keys:
            return set()
        self.statements.find(connection, PARKED, sorted(keys))  # locked, so that nobody buries them from here on
        hint = " FORCE INDEX (outbox_parked_state)" if self.dialect in {"mysql", "mariadb"} else ""
        buried: set[Key] = set()
        for part in in_parts(sorted({one.key.id for one in round_.aside_parked}), _IDS_PER_STATEMENT):
            ids = ",".join([str(int(number)) for number in part])
            found = fetch(
                connection,
                f"SELECT partition_no, lane, id, dest FROM outbox_parked{hint}"
                f" WHERE state = 'BURIED' AND id IN ({ids})",
            )
            buried.update(tuple(row) for row in found)
        return buried & keys

    def _lost(self, connection: Connection, progress: Sequence[Progress]) -> list[Tenure]:
        """Write the progress of the partitions one by one, and return those that are not ours any more."""
        return [one.tenure for one in progress if self.statements.advance(connection, self._renewal, [one]) == 0]

    def _settled_before(self, connection: Connection, round_: _Round, there: _There) -> set[tuple[int, int]]:
        """(id, dest) of rows that are gone but carry our own trace: settled by an attempt whose answer was lost."""
        rows: WorkRows = work_rows(self.dialect)
        before: set[tuple[int, int]] = set()
        gone = [one.key for one in round_.sent if not there.ready_row(one)]
        gone += [one.key for one in round_.sent_parked if not there.parked_sent(one)]
        for tenure, *_ in round_.progress:
            keys = sorted(key for key in gone if key.partition_no == tenure.partition_no)
            found = rows.with_receipt(connection, keys, Fence(self.owner, tenure.token)) if keys else set()
            before.update((key.id, key.dest) for key in found)
        aside = [
            Parked(one.key, one.stream.lane, one.state, None, one.attempts, one.error)  # type: ignore[arg-type]
            for one in round_.aside
            if not there.ready_row(one)
        ]
        before.update((key.id, key.dest) for key in rows.are_parked(connection, aside))
        return before


@dataclass(frozen=True, slots=True)
class _There:
    """The rows that a settlement names and finds."""

    ready: set[Key]
    parked: set[Key]

    def ready_row(self, one: Sent | Aside) -> bool:
        return tuple(one.key) in self.ready

    def parked_sent(self, one: SentParked) -> bool:
        return _parked_key(one.key, one.lane) in self.parked

    def parked_aside(self, one: Aside) -> bool:
        return _parked_key(one.key, one.stream.lane) in self.parked

    def holds_of(self, round_: _Round) -> list[Hold]:
        """Without those whose head is gone: it was set aside by an attempt whose answer was lost, and an operator may
        have let it go since; a hold written again would wait for a head that nobody has given up."""
        gone = {(one.stream.partition_no, one.key.id) for one in round_.aside if not self.ready_row(one)}
        gone |= {(one.stream.partition_no, one.key.id) for one in round_.aside_parked if not self.parked_aside(one)}
        return [one for one in round_.holds if (one.stream.partition_no, one.head_id) not in gone]


@dataclass(frozen=True, slots=True)
class _Round:
    """A settlement in the order of its keys, which is the order in which rows are locked, with storable texts."""

    progress: Sequence[Progress]
    sent: Sequence[Sent]
    aside: Sequence[Aside]
    sent_parked: Sequence[SentParked]
    aside_parked: Sequence[Aside]
    holds: Sequence[Hold]
    freed: Sequence[Stream]

    @classmethod
    def of(cls, settlement: OrderedSettlement) -> _Round:
        return cls(
            sorted(settlement.progress),
            sorted(settlement.sent),
            _storable(settlement.aside),
            sorted(settlement.sent_parked),
            _storable(settlement.aside_parked),
            [one._replace(reason=storable(one.reason)) for one in sorted(settlement.holds, key=lambda h: h.stream)],
            sorted(set(settlement.freed)),
        )

    @property
    def only_sent(self) -> bool:
        others = self.aside or self.sent_parked or self.aside_parked or self.holds or self.freed
        return bool(self.sent) and not others

    def ready_keys(self) -> list[Key]:
        if not self.aside:
            return [one.key for one in self.sent]
        return sorted([*(one.key for one in self.sent), *(one.key for one in self.aside)])

    def parked_keys(self) -> list[Key]:
        sent = [_parked_key(one.key, one.lane) for one in self.sent_parked]
        return sorted([*sent, *(_parked_key(one.key, one.stream.lane) for one in self.aside_parked)])

    def receipts(self) -> list[Receipt]:
        tokens = {one.tenure.partition_no: one.tenure.token for one in self.progress}
        found: list[Receipt] = [(i, d, tokens[n], p, o) for (n, i, d), p, o in self.sent]
        found += [(i, d, tokens[n], p, o) for (n, i, d), _, p, o in self.sent_parked]
        return found

    def without(self, lost: set[int]) -> _Round:
        """The part about other partitions."""
        if not lost:
            return self

        def mine(rows: Sequence[T], partition: Callable[[T], int]) -> list[T]:
            return [one for one in rows if partition(one) not in lost]

        return replace(
            self,
            progress=mine(self.progress, lambda one: one.tenure.partition_no),
            sent=mine(self.sent, lambda one: one.key.partition_no),
            aside=mine(self.aside, lambda one: one.key.partition_no),
            sent_parked=mine(self.sent_parked, lambda one: one.key.partition_no),
            aside_parked=mine(self.aside_parked, lambda one: one.key.partition_no),
            holds=mine(self.holds, lambda one: one.stream.partition_no),
            freed=mine(self.freed, lambda one: one.partition_no),
        )


def _report(
    round_: _Round, there: _There, before: set[tuple[int, int]], lost: Sequence[Tenure], kept: Sequence[Stream]
) -> OrderedSettled:
    sent = [(one.key, there.ready_row(one)) for one in round_.sent]
    sent += [(one.key, there.parked_sent(one)) for one in round_.sent_parked]
    aside = [(one.key, there.ready_row(one)) for one in round_.aside]
    aside += [(one.key, there.parked_aside(one)) for one in round_.aside_parked]

    def done(rows: list[tuple[WorkKey, bool]]) -> int:
        return sum(found or (key.id, key.dest) in before for key, found in rows)

    vanished = [key for key, found in [*sent, *aside] if not found and (key.id, key.dest) not in before]
    return OrderedSettled(done(sent), done(aside), tuple(lost), tuple(sorted(vanished)), tuple(kept))


def _parked_key(key: WorkKey, lane: int) -> Key:
    return (key.partition_no, lane, key.id, key.dest)


def _storable(rows: Sequence[Aside]) -> list[Aside]:
    fit = [one._replace(error=storable(one.error), attempts=min(one.attempts, MAX_ATTEMPTS)) for one in rows]
    return sorted(fit, key=lambda one: one.key)


def _expect(found: int, expected: int) -> None:
    if found != expected:
        raise _NotAsExpected
