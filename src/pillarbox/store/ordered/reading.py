"""Reading what is ready, or parked, with its events, in order and within a budget of memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, Protocol

from sqlalchemy import Connection

from ...policy.lanes import lane_of
from ...ports import EVERY_LANE, Reading, Span, Stream, WorkKey
from .. import messages
from ..found import Found, fit
from ..raw import fetch
from .rows import Rows, rows_of

_FIRST_GUESS: Final = 65_536  # bytes of an average payload, before any was read
_WAITING: Final = "('HELD', 'RETRY')"


class Spans(Protocol):
    """How a kind of server reads several ordered ranges of the ready table in one statement."""

    def source(self, spans: Sequence[Span], limit: int, owner: str) -> tuple[str, tuple[Any, ...]]:
        """What stands behind FROM, with its parameters: ``r`` ordered by (partition_no, id, dest), LEFT JOIN ``e``.

        Without partitions that ``owner`` does not own in the statement's own snapshot.
        """
        ...


class Reader:
    """Reads for one relay. It remembers how large payloads were lately, and reads fewer rows when they were large.

    Each read is fenced by the owner's name in its own snapshot. That suffices: a name belongs to one living relay,
    which acquires and reads on one thread, so what it has lost and taken back since is known to it.
    """

    def __init__(self, dialect: str, spans: Spans, owner: str) -> None:
        self._rows: Rows = rows_of(dialect)
        self._spans = spans
        self._owner = owner
        self._mine = "(SELECT p.owner FROM outbox_partition p WHERE p.partition_no = {number:d}) = " + (
            "?" if dialect == "sqlite" else "%s"
        )
        self._one_statement = dialect != "sqlite"
        self._hint = " FORCE INDEX (PRIMARY)" if dialect in {"mysql", "mariadb"} else ""
        self._mean = float(_FIRST_GUESS)
        self._last: dict[Stream, tuple[WorkKey, int]] = {}

    def read(
        self, connection: Connection, spans: Sequence[Span], limit: int, budget: int, bare: Collection[int]
    ) -> Reading:
        """See ports.OrderedQueue.read."""
        at_most, spans = self._at_most(limit, budget), sorted(spans)
        if not spans or at_most < 1:
            return Reading((), (), False)
        found = Found([], [], True)
        for together in [spans] if self._one_statement else [[span] for span in spans]:
            source, parameters = self._spans.source(together, at_most - len(found.rows), self._owner)
            found = found.and_then(self._rows.read(connection, source, parameters, bare))
            if len(found.rows) >= at_most:
                break
        return self._reading(connection, found, at_most, budget)

    def read_parked(
        self, connection: Connection, stream: Stream, after: WorkKey | None, limit: int, budget: int
    ) -> Reading:
        """See ports.OrderedQueue.read_parked."""
        at_most = self._at_most(limit, budget)
        if at_most < 1:
            return Reading((), (), False)
        if stream.lane == EVERY_LANE:
            lane = None if after is None else self._lane_of(connection, stream, after)
            source = self._source_of_lanes(stream, after, lane)
        else:
            source = self._source_of_stream(stream, after)
        order = f"ORDER BY r.partition_no, r.lane, r.id, r.dest LIMIT {at_most:d}"
        fenced = f"{source} AND {self._mine.format(number=stream.partition_no)} {order}"
        found = self._rows.read(connection, fenced, (self._owner,), ())
        reading = self._reading(connection, found, at_most, budget)
        if stream.lane == EVERY_LANE:
            taken = len(reading.deliveries) + len(reading.orphans)
            self._last = {stream: found.rows[taken - 1][:2]} if taken else {}
        return reading

    def _at_most(self, limit: int, budget: int) -> int:
        return min(limit, max(1, int(budget / max(self._mean, 1.0) * 1.25)))

    def _reading(self, connection: Connection, found: Found, at_most: int, budget: int) -> Reading:
        fitting = fit(found, budget, lambda number: messages.payload_of(connection, number))
        if found.rows:
            self._mean = max(fitting.bytes / len(found.rows), self._mean / 4)
        return Reading(fitting.deliveries, fitting.orphans, bool(fitting.left) or len(found.rows) >= at_most)

    def _source_of_stream(self, stream: Stream, after: WorkKey | None) -> str:
        """A range of the primary key (partition_no, lane, id, dest)."""
        behind = (
            "" if after is None else f" AND (r.id > {after.id:d} OR (r.id = {after.id:d} AND r.dest > {after.dest:d}))"
        )
        return (
            f"outbox_parked r{self._hint} LEFT JOIN outbox_event e ON e.id = r.id"
            f" WHERE r.partition_no = {stream.partition_no:d} AND r.lane = {stream.lane:d}{behind}"
            f" AND r.target = {stream.target:d} AND r.state IN {_WAITING}"
        )

    def _source_of_lanes(self, stream: Stream, after: WorkKey | None, lane: int | None) -> str:
        """The rest of the partition's parked rows, by lane; those of lanes with a hold of their own are passed over."""
        behind = ""
        if after is not None and lane is not None:
            behind = (
                f" AND (r.lane > {lane:d} OR (r.lane = {lane:d} AND r.id > {after.id:d})"
                f" OR (r.lane = {lane:d} AND r.id = {after.id:d} AND r.dest > {after.dest:d}))"
            )
        return (
            f"outbox_parked r{self._hint} LEFT JOIN outbox_lane h{self._hint}"
            " ON h.partition_no = r.partition_no AND h.lane = r.lane AND h.target = r.target"
            " LEFT JOIN outbox_event e ON e.id = r.id"
            f" WHERE r.partition_no = {stream.partition_no:d}{behind}"
            f" AND r.target = {stream.target:d} AND r.state IN {_WAITING} AND h.lane IS NULL"
        )

    def _lane_of(self, connection: Connection, stream: Stream, after: WorkKey) -> int | None:
        """Which lane the last row read was of: it may be settled and gone by now."""
        key, lane = self._last.get(stream, (None, 0))
        if key == after:
            return lane
        sql = f"SELECT event_key, event_id FROM outbox_event WHERE id = {after.id:d}"
        event = fetch(connection, sql)
        return lane_of(event[0][1] if event[0][0] is None else event[0][0]) if event else None


class MysqlSpans:
    """Several ranges of PRIMARY in the order of the key, ended by LIMIT; the hints pin that order.

    The list of owned partitions is made once for the statement, since nothing in it refers to a row.
    """

    def source(self, spans: Sequence[Span], limit: int, owner: str) -> tuple[str, tuple[Any, ...]]:
        """See Spans.source."""
        ranges = " OR ".join([f"(r.partition_no = {n:d} AND r.id > {after:d})" for n, after in spans])
        return (
            "outbox_ready r FORCE INDEX (PRIMARY) LEFT JOIN outbox_event e ON e.id = r.id"
            f" WHERE ({ranges}) AND FIND_IN_SET(r.partition_no,"
            " (SELECT GROUP_CONCAT(p.partition_no) FROM outbox_partition p WHERE p.owner = %s))"
            f" ORDER BY r.partition_no, r.id, r.dest LIMIT {limit:d}",
            (owner,),
        )


class PostgresSpans:
    """One range of the primary key after the other, each read only if those before did not give enough.

    Nested loops (the engine shuts the other ways of joining) keep the order of the spans; PostgreSQL has no index scan
    over several ordered ranges.
    """

    def source(self, spans: Sequence[Span], limit: int, owner: str) -> tuple[str, tuple[Any, ...]]:
        """See Spans.source."""
        numbers, after = zip(*spans, strict=True)
        return (
            "unnest(%s::smallint[], %s::bigint[]) AS s(n, after) CROSS JOIN LATERAL"
            " (SELECT * FROM outbox_ready o WHERE o.partition_no = s.n AND o.id > s.after"
            " ORDER BY o.partition_no, o.id, o.dest LIMIT %s::int) r"
            " LEFT JOIN outbox_event e ON e.id = r.id"
            " WHERE s.n = ANY(ARRAY(SELECT p.partition_no FROM outbox_partition p WHERE p.owner = %s)) LIMIT %s::int",
            (list(numbers), list(after), limit, owner, limit),
        )


class SqliteSpans:
    """One span a statement: there is no round trip to save."""

    def source(self, spans: Sequence[Span], limit: int, owner: str) -> tuple[str, tuple[Any, ...]]:
        """See Spans.source."""
        ((number, after),) = spans
        return (
            "outbox_ready r LEFT JOIN outbox_event e ON e.id = r.id"
            " WHERE r.partition_no = ? AND r.id > ?"
            " AND (SELECT p.owner FROM outbox_partition p WHERE p.partition_no = ?) = ?"
            " ORDER BY r.partition_no, r.id, r.dest LIMIT ?",
            (number, after, number, owner, limit),
        )
