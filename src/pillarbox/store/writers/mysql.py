"""MySQL and MariaDB. The ids are read by event id with a plain SELECT: see :mod:`pillarbox.store.write`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...event.message import Message
from . import (
    COLUMNS,
    MARKS,
    Executor,
    Row,
    deliveries_of,
    event_parameters,
    later_deliveries,
    naive,
    read_ids,
    scheduled,
)

_PAYLOAD: Final = Message._fields.index("payload")
_STATEMENT_BYTES: Final = 1_048_576  # below every server's default max_allowed_packet (MySQL 5.7: 4 MiB), even escaped
_STATEMENT_ROWS: Final = 1_000  # beyond range_optimizer_max_mem_size an IN list makes MySQL scan

_MY_EVENT = f"INSERT INTO outbox_event ({COLUMNS}, recorded_at) VALUES "
_MY_EVENT_ROW = f"({MARKS}, UTC_TIMESTAMP(6))"
_MY_EVENT_ROW_HEX = "(" + ", ".join(["?"] * 9 + ["UNHEX(?)"] + ["?"] * 3) + ", UTC_TIMESTAMP(6))"
_MY_READY = "INSERT INTO outbox_ready (partition_no, id, dest, lane) VALUES "
_MY_PARKED = scheduled.PARKED + "VALUES "
_MY_PARKED_ROW = scheduled.PARKED_ROW.format(now="UTC_TIMESTAMP(6)")


def write_mysql(execute: Executor, rows: Sequence[Row]) -> list[int]:
    """Insert events and their work rows; returns the row ids in order."""
    if len(rows) == 1:
        return [_write_mysql_one(execute, rows[0])]
    return [row_id for part in _statements(rows) for row_id in _write_mysql_many(execute, part)]


def _write_mysql_one(execute: Executor, row: Row) -> int:
    # Not LAST_INSERT_ID(): it belongs to the connection, where another task of the caller, or a listener that keeps an
    # audit table, may have inserted since.
    row_id = _insert_mysql_events(execute, (row,)) or read_ids(execute, (row,))[0]
    _insert_mysql_deliveries(execute, (row,), (row_id,))
    return row_id


def _insert_mysql_events(execute: Executor, rows: Sequence[Row]) -> int:
    each = [event_parameters(row, naive) for row in rows]
    if execute.bytes_as_hex:
        for parameters, row in zip(each, rows, strict=True):
            parameters[_PAYLOAD] = row.message.payload.hex()
    values = [_MY_EVENT_ROW_HEX if execute.bytes_as_hex else _MY_EVENT_ROW] * len(rows)
    return execute.inserted(_MY_EVENT + ", ".join(values), [part for parameters in each for part in parameters])


def _write_mysql_many(execute: Executor, rows: Sequence[Row]) -> list[int]:
    _insert_mysql_events(execute, rows)
    ids = read_ids(execute, rows)
    _insert_mysql_deliveries(execute, rows, ids)
    return ids


def _insert_mysql_deliveries(execute: Executor, rows: Sequence[Row], ids: Sequence[int]) -> None:
    start, mark, deliveries = _MY_READY, "(?, ?, ?, ?)", deliveries_of(rows, ids)
    if rows[0].later is not None:
        start, mark, deliveries = _MY_PARKED, _MY_PARKED_ROW, later_deliveries(rows, ids, naive)
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
