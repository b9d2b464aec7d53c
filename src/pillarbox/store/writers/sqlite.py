"""SQLite. One statement for each row: there is no round trip to save."""

from __future__ import annotations

from collections.abc import Sequence

from . import (
    COLUMNS,
    MARKS,
    Executor,
    Row,
    as_text,
    deliveries_of,
    event_parameters,
    later_deliveries,
    read_ids,
    scheduled,
)

_LITE_NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
_LITE_EVENT = f"INSERT INTO outbox_event ({COLUMNS}, recorded_at) VALUES ({MARKS}, {_LITE_NOW})"
_LITE_PARKED = scheduled.PARKED + "VALUES " + scheduled.PARKED_ROW.format(now=_LITE_NOW)
_LITE_READY = "INSERT INTO outbox_ready (partition_no, id, dest, lane) VALUES (?, ?, ?, ?)"


def write_sqlite(execute: Executor, rows: Sequence[Row]) -> list[int]:
    """Insert events and their work rows; returns the row ids in order."""
    if len(rows) == 1 and rows[0].deliveries == 1:
        ids = [execute.inserted(_LITE_EVENT, event_parameters(rows[0], as_text))]
    else:
        execute.insert_each(_LITE_EVENT, [event_parameters(row, as_text) for row in rows])
        ids = [found for start in range(0, len(rows), 500) for found in read_ids(execute, rows[start : start + 500])]
    sql, deliveries = _LITE_READY, deliveries_of(rows, ids)
    if rows[0].later is not None:
        sql, deliveries = _LITE_PARKED, later_deliveries(rows, ids, as_text)
    if len(deliveries) == 1:
        execute.inserted(sql, deliveries[0])
    else:
        execute.insert_each(sql, deliveries)
    return ids
