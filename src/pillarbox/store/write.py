"""Writing events: the statements of one ``add``, and nothing else. No guard, no encoding, no commit.

==========  ==========================  =====================================================
server      one event                   many events
==========  ==========================  =====================================================
PostgreSQL  1 statement                 1 statement
MySQL       2 inserts                   3 for each MiB: insert, read the ids, insert
SQLite      2 inserts                   3: insert, read the ids (500 at a time), insert
==========  ==========================  =====================================================

MySQL reads the ids by event id with a plain SELECT, which sees the transaction's own rows and locks nothing:
``INSERT … SELECT`` under the caller's REPEATABLE READ would take next-key locks. Consecutive ids are not assumed
(``auto_increment_increment``, Galera). Row ids follow the order of the list on every server.

An event that goes later is written to the parked table instead, in as many statements (:mod:`.scheduled`).

The statements go through a small :class:`Executor`, so that a cursor other than SQLAlchemy's can run them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from sqlalchemy import Connection

from ..event.destination import Destination
from ..event.message import Message
from ..policy.lanes import PARTITIONS, lane_of, partition_of
from . import scheduled
from .scheduled import Later

COLUMNS: Final = (
    "event_id, event_type, schema_version, aggregate_type, aggregate_id, event_key, occurred_at, headers, "
    "content_type, payload, destination, routing_key, more_destinations"
)
"""In the order of Message's fields, so that a message is the parameter list."""

_OCCURRED_AT = Message._fields.index("occurred_at")
_PAYLOAD = Message._fields.index("payload")
_MARKS = ", ".join("?" * 13)
_STATEMENT_BYTES = 1_048_576  # below every server's default max_allowed_packet (MySQL 5.7: 4 MiB), even when escaped
_STATEMENT_ROWS = 1_000  # beyond range_optimizer_max_mem_size an IN list makes MySQL scan


class Row(NamedTuple):
    """One event as it is written: its columns and its place in the queue. ``deliveries`` counts its destinations.

    Of rows that are written together, either all go ``later``, at the same time, or none.
    """

    message: Message
    more_destinations: str | None
    deliveries: int
    lane: int
    partition_no: int
    later: Later | None = None


class Executor(Protocol):
    """Runs SQL on the caller's connection. ``sql`` has ``?`` for its parameters; the executor knows its own style.

    ``bytes_as_hex``: the driver takes no bytes as parameters (aiomysql 0.3 beside PyMySQL 1.2).
    """

    bytes_as_hex: bool

    def inserted(self, sql: str, parameters: Sequence[object]) -> int:
        """Run one INSERT; the id that the database gave to the (first) row, 0 where it gives none."""
        ...

    def insert_each(self, sql: str, parameters: Sequence[Sequence[object]]) -> None:
        """Run one INSERT for each parameter list."""
        ...

    def returned(self, sql: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        """Run a statement and fetch the rows it returns."""
        ...


Write = Callable[[Executor, Sequence[Row]], list[int]]


def row_of(
    message: Message,
    more: Sequence[Destination] = (),
    *,
    partitions: int = PARTITIONS,
    due: datetime | None = None,
) -> Row:
    """Place a message in its lane: by its key, or by its own id where it has none. ``due`` (UTC): not before then."""
    lane = lane_of(message.event_id if message.key is None else message.key)
    text = json.dumps([list(one) for one in more], ensure_ascii=False, separators=(",", ":")) if more else None
    later = None if due is None else Later(due, tuple(map(lane_of, (message.destination, *(one.name for one in more)))))
    return Row(message, text, 1 + len(more), lane, partition_of(lane, partitions), later)


def is_past(execute: Executor, dialect_name: str, due: datetime) -> bool:
    """Whether the database's clock has passed ``due`` (UTC)."""
    shown = {"postgresql": due, "sqlite": _text(due)}.get(dialect_name, _naive(due))
    return bool(execute.returned(scheduled.PAST[dialect_name], (shown,))[0][0])


def insert(connection: Connection, rows: Sequence[Row]) -> list[int]:
    """Insert events and their deliveries in the connection's transaction; returns their row ids in order."""
    return insert_with(OverCore(connection), connection.dialect.name, rows)


def insert_with(execute: Executor, dialect_name: str, rows: Sequence[Row]) -> list[int]:
    """The same through any executor."""
    return WRITERS[dialect_name](execute, rows) if rows else []


def standing(execute: Executor, event_ids: Sequence[str]) -> list[str]:
    """Those of the ids that are in the table, in order."""
    found: set[str] = set()
    for start in range(0, len(event_ids), 500):
        part = event_ids[start : start + 500]
        sql = f"SELECT event_id FROM outbox_event WHERE event_id IN ({', '.join('?' * len(part))})"
        found.update(one[0] for one in execute.returned(sql, part))
    return [event_id for event_id in event_ids if event_id in found]


class OverCore:
    """SQLAlchemy's connection as an executor. Statements pass as driver SQL: nothing is compiled per call."""

    __slots__ = ("_connection", "_style", "bytes_as_hex", "statements")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.statements = 0
        """How many have succeeded: after a failure, whether part of the write stands in the transaction."""
        self._style = connection.dialect.paramstyle
        self.bytes_as_hex = connection.dialect.driver == "aiomysql"

    def inserted(self, sql: str, parameters: Sequence[object]) -> int:
        result = self._connection.exec_driver_sql(styled(sql, self._style), tuple(parameters))
        self.statements += 1
        return result.lastrowid or 0

    def insert_each(self, sql: str, parameters: Sequence[Sequence[object]]) -> None:
        self._connection.exec_driver_sql(styled(sql, self._style), [tuple(one) for one in parameters])
        self.statements += 1

    def returned(self, sql: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        return self._connection.exec_driver_sql(styled(sql, self._style), tuple(parameters)).all()


def styled(sql: str, paramstyle: str) -> str:
    """The statement with the driver's own marks in place of ``?``."""
    if paramstyle in ("format", "pyformat"):
        return sql.replace("%", "%%").replace("?", "%s")
    return sql if paramstyle == "qmark" else _numbered(sql)


@cache
def _numbered(sql: str) -> str:
    head, *tail = sql.split("?")
    return head + "".join(f"${place}{part}" for place, part in enumerate(tail, start=1))


# PostgreSQL -------------------------------------------------------------------------------------------------------

_PG_INSERT = f"INSERT INTO outbox_event ({COLUMNS}, recorded_at) VALUES ({_MARKS}, clock_timestamp()) RETURNING id"
_PG_EVENT = (
    f"WITH e AS ({_PG_INSERT}) "
    "INSERT INTO outbox_ready (partition_no, id, dest, lane) SELECT CAST(? AS smallint), e.id, "
)
# A third of the server's time less than through generate_series.
_PG_ONE = _PG_EVENT + "0, CAST(? AS bigint) FROM e RETURNING id"
_PG_SEVERAL = (
    _PG_EVENT
    + "d.dest, CAST(? AS bigint) FROM e CROSS JOIN generate_series(0, CAST(? AS integer) - 1) AS d(dest) RETURNING id"
)
_PG_TYPES = (
    *("text", "text", "integer", "text", "text", "text", "timestamptz", "text"),
    *("text", "bytea", "text", "text", "text", "smallint", "bigint", "integer"),
)
_PG_ONE_LATER = scheduled.PG_ONE.format(event=_PG_INSERT)


def _pg_many(place: str, types: Sequence[str], work: str) -> str:
    # Ids are drawn above the sort, so they follow the list; RETURNING promises no order, hence the join by event id.
    return (
        f"WITH g AS (SELECT * FROM unnest({', '.join(f'CAST(? AS {kind}[])' for kind in types)}) "
        f"WITH ORDINALITY AS g({COLUMNS}, {place}, place)), "
        f"e AS (INSERT INTO outbox_event ({COLUMNS}, recorded_at) "
        f"SELECT {COLUMNS}, clock_timestamp() FROM g ORDER BY place RETURNING id, event_id), "
        f"r AS ({work}) SELECT event_id, id FROM e"
    )


_PG_MANY = _pg_many(
    "partition_no, lane, deliveries",
    _PG_TYPES,
    "INSERT INTO outbox_ready (partition_no, id, dest, lane) SELECT g.partition_no, e.id, d.dest, g.lane "
    "FROM e JOIN g ON g.event_id = e.event_id CROSS JOIN LATERAL generate_series(0, g.deliveries - 1) AS d(dest)",
)
_PG_MANY_LATER = _pg_many(
    "partition_no, lane, due, targets", (*_PG_TYPES[:-1], "timestamptz", "text"), scheduled.PG_OF_MANY
)


def _write_postgresql(execute: Executor, rows: Sequence[Row]) -> list[int]:
    if rows[0].later is not None:
        return _write_postgresql_later(execute, rows)
    if len(rows) == 1:
        message, more, deliveries, lane, partition_no, _ = rows[0]
        if deliveries == 1:
            return [execute.returned(_PG_ONE, (*message, more, partition_no, lane))[0][0]]
        return [execute.returned(_PG_SEVERAL, (*message, more, partition_no, lane, deliveries))[0][0]]
    each = [(*row.message, row.more_destinations, row.partition_no, row.lane, row.deliveries) for row in rows]
    return _pg_ids(execute, _PG_MANY, each, rows)


def _write_postgresql_later(execute: Executor, rows: Sequence[Row]) -> list[int]:
    places = [(row, row.later) for row in rows if row.later is not None]
    if len(rows) == 1:
        ((row, later),) = places
        work = (row.partition_no, row.lane, later.due, list(later.targets))
        return [execute.returned(_PG_ONE_LATER, (*row.message, row.more_destinations, *work))[0][0]]
    each = [
        (*row.message, row.more_destinations, row.partition_no, row.lane, later.due, scheduled.as_text(later.targets))
        for row, later in places
    ]
    return _pg_ids(execute, _PG_MANY_LATER, each, rows)


def _pg_ids(execute: Executor, sql: str, each: Sequence[Sequence[object]], rows: Sequence[Row]) -> list[int]:
    ids = dict(_pairs(execute.returned(sql, [list(column) for column in zip(*each, strict=True)])))
    return [ids[row.message.event_id] for row in rows]


# MySQL and MariaDB ------------------------------------------------------------------------------------------------

_MY_EVENT = f"INSERT INTO outbox_event ({COLUMNS}, recorded_at) VALUES "
_MY_EVENT_ROW = f"({_MARKS}, UTC_TIMESTAMP(6))"
_MY_EVENT_ROW_HEX = "(" + ", ".join(["?"] * 9 + ["UNHEX(?)"] + ["?"] * 3) + ", UTC_TIMESTAMP(6))"
_MY_READY = "INSERT INTO outbox_ready (partition_no, id, dest, lane) VALUES "
_MY_PARKED = scheduled.PARKED + "VALUES "
_MY_PARKED_ROW = scheduled.PARKED_ROW.format(now="UTC_TIMESTAMP(6)")


def _write_mysql(execute: Executor, rows: Sequence[Row]) -> list[int]:
    if len(rows) == 1:
        return [_write_mysql_one(execute, rows[0])]
    return [row_id for part in _statements(rows) for row_id in _write_mysql_many(execute, part)]


def _write_mysql_one(execute: Executor, row: Row) -> int:
    # Not LAST_INSERT_ID(): it belongs to the connection, where another task of the caller, or a listener that keeps an
    # audit table, may have inserted since.
    row_id = _insert_mysql_events(execute, (row,)) or _read_ids(execute, (row,))[0]
    _insert_mysql_deliveries(execute, (row,), (row_id,))
    return row_id


def _insert_mysql_events(execute: Executor, rows: Sequence[Row]) -> int:
    each = [_event_parameters(row, _naive) for row in rows]
    if execute.bytes_as_hex:
        for parameters, row in zip(each, rows, strict=True):
            parameters[_PAYLOAD] = row.message.payload.hex()
    values = [_MY_EVENT_ROW_HEX if execute.bytes_as_hex else _MY_EVENT_ROW] * len(rows)
    return execute.inserted(_MY_EVENT + ", ".join(values), [part for parameters in each for part in parameters])


def _write_mysql_many(execute: Executor, rows: Sequence[Row]) -> list[int]:
    _insert_mysql_events(execute, rows)
    ids = _read_ids(execute, rows)
    _insert_mysql_deliveries(execute, rows, ids)
    return ids


def _insert_mysql_deliveries(execute: Executor, rows: Sequence[Row], ids: Sequence[int]) -> None:
    start, mark, deliveries = _MY_READY, "(?, ?, ?, ?)", _deliveries(rows, ids)
    if rows[0].later is not None:
        start, mark, deliveries = _MY_PARKED, _MY_PARKED_ROW, _scheduled(rows, ids, _naive)
    flat = [part for delivery in deliveries for part in delivery]
    execute.inserted(start + ", ".join([mark] * len(deliveries)), flat)


def _statements(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Cut the list so that no statement outgrows max_allowed_packet; a single large event is its own statement."""
    start = size = 0
    for place, row in enumerate(rows):
        bytes_of_row = 2 * len(row.message.payload) + 4 * len(row.message.headers or "") + 500
        if place > start and (size + bytes_of_row > _STATEMENT_BYTES or place - start == _STATEMENT_ROWS):
            yield rows[start:place]
            start, size = place, 0
        size += bytes_of_row
    yield rows[start:]


# SQLite -----------------------------------------------------------------------------------------------------------

_LITE_NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
_LITE_EVENT = f"INSERT INTO outbox_event ({COLUMNS}, recorded_at) VALUES ({_MARKS}, {_LITE_NOW})"
_LITE_PARKED = scheduled.PARKED + "VALUES " + scheduled.PARKED_ROW.format(now=_LITE_NOW)
_LITE_READY = "INSERT INTO outbox_ready (partition_no, id, dest, lane) VALUES (?, ?, ?, ?)"


def _write_sqlite(execute: Executor, rows: Sequence[Row]) -> list[int]:
    if len(rows) == 1 and rows[0].deliveries == 1:
        ids = [execute.inserted(_LITE_EVENT, _event_parameters(rows[0], _text))]
    else:
        execute.insert_each(_LITE_EVENT, [_event_parameters(row, _text) for row in rows])
        ids = [found for start in range(0, len(rows), 500) for found in _read_ids(execute, rows[start : start + 500])]
    sql, deliveries = _LITE_READY, _deliveries(rows, ids)
    if rows[0].later is not None:
        sql, deliveries = _LITE_PARKED, _scheduled(rows, ids, _text)
    if len(deliveries) == 1:
        execute.inserted(sql, deliveries[0])
    else:
        execute.insert_each(sql, deliveries)
    return ids


# Shared by MySQL and SQLite ---------------------------------------------------------------------------------------


def _event_parameters(row: Row, moment: Callable[[Any], object]) -> list[object]:
    parameters: list[object] = [*row.message, row.more_destinations]
    parameters[_OCCURRED_AT] = moment(row.message.occurred_at)
    return parameters


def _naive(moment: Any) -> object:
    return moment.replace(tzinfo=None)  # messages are in UTC


def _text(moment: Any) -> object:
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _read_ids(execute: Executor, rows: Sequence[Row]) -> list[int]:
    """Uses UNIQUE(event_id)."""
    sql = f"SELECT event_id, id FROM outbox_event WHERE event_id IN ({', '.join('?' * len(rows))})"
    ids = dict(_pairs(execute.returned(sql, [row.message.event_id for row in rows])))
    return [ids[row.message.event_id] for row in rows]


def _pairs(found: Sequence[Sequence[Any]]) -> Iterator[tuple[str, int]]:
    return ((one[0], one[1]) for one in found)


def _scheduled(rows: Sequence[Row], ids: Sequence[int], moment: Callable[[Any], object]) -> list[tuple[object, ...]]:
    return [
        (row.partition_no, row.lane, row_id, dest, moment(row.later.due), target)
        for row, row_id in zip(rows, ids, strict=True)
        if row.later is not None
        for dest, target in enumerate(row.later.targets)
    ]


def _deliveries(rows: Sequence[Row], ids: Sequence[int]) -> list[tuple[object, ...]]:
    pairs = zip(rows, ids, strict=True)
    return [(row.partition_no, row_id, dest, row.lane) for row, row_id in pairs for dest in range(row.deliveries)]


WRITERS: Final[dict[str, Write]] = {
    "postgresql": _write_postgresql,
    "mysql": _write_mysql,
    "mariadb": _write_mysql,
    "sqlite": _write_sqlite,
}
