"""SQLite. One statement for each row, prepared once: there is no round trip to save, no limit on variables to mind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection

from ...ports import Parked, Sent, WorkKey
from . import Fence

NOW: Final = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
LATER: Final = "strftime('%Y-%m-%d %H:%M:%f', 'now', ?)"
RECEIPT_AGAIN: Final = (
    " ON CONFLICT (id, dest) DO UPDATE SET sent_at = excluded.sent_at, relay = excluded.relay, token = excluded.token,"
    " broker_partition = excluded.broker_partition, broker_offset = excluded.broker_offset"
)
_ROW: Final = "partition_no = ? AND id = ? AND dest = ?"
_FENCED: Final = f"{_ROW} AND owner = ? AND token = ?"


class SqliteRows:
    """See :class:`.WorkRows`. The transaction holds the write lock, so nothing needs locking row by row."""

    def remove(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> int:
        return _each(connection, f"DELETE FROM outbox_ready WHERE {_FENCED}", [(*key, *fence) for key in keys])

    def ours(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> set[WorkKey]:
        sql = f"SELECT 1 FROM outbox_ready WHERE {_FENCED}"
        return {key for key in keys if connection.exec_driver_sql(sql, (*key, *fence)).first()}

    def give_back(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> int:
        sql = (
            "UPDATE outbox_ready SET leased_until = '1970-01-01 00:00:00', owner = '', claims = max(claims - 1, 0)"
            f" WHERE {_FENCED}"
        )
        return _each(connection, sql, [(*key, *fence) for key in keys])

    def given_back(self, connection: Connection, keys: Sequence[WorkKey], token: int) -> set[WorkKey]:
        return self.ours(connection, keys, Fence("", token))

    def extend(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence, seconds: float) -> int:
        sql = f"UPDATE outbox_ready SET leased_until = {LATER} WHERE {_FENCED}"
        return _each(connection, sql, [(later(seconds), *key, *fence) for key in keys])

    def add_receipts(self, connection: Connection, sent: Sequence[Sent], fence: Fence, *, again: bool) -> None:
        sql = (
            "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)"
            f" VALUES (?, ?, {NOW}, ?, ?, ?, ?){RECEIPT_AGAIN if again else ''}"
        )
        _each(connection, sql, [(one.key.id, one.key.dest, *fence, one.partition, one.offset) for one in sent])

    def with_receipt(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> set[WorkKey]:
        sql = "SELECT 1 FROM outbox_receipt WHERE id = ? AND dest = ? AND relay = ? AND token = ?"
        return {key for key in keys if connection.exec_driver_sql(sql, (key.id, key.dest, *fence)).first()}

    def add_parked(self, connection: Connection, parked: Sequence[Parked]) -> None:
        sql = (
            "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, due_at, attempts, error, error_at)"
            f" VALUES (?, ?, ?, ?, ?, {LATER}, ?, ?, {NOW}) ON CONFLICT (partition_no, lane, id, dest) DO UPDATE"
            " SET state = excluded.state, due_at = excluded.due_at, attempts = excluded.attempts,"
            " error = excluded.error, error_at = excluded.error_at"
        )
        rows: list[tuple[Any, ...]] = [
            (
                one.key.partition_no,
                one.lane,
                one.key.id,
                one.key.dest,
                one.state,
                None if one.due_in is None else later(one.due_in),  # strftime gives NULL for a NULL modifier
                one.attempts,
                one.error,
            )
            for one in parked
        ]
        _each(connection, sql, rows)

    def are_parked(self, connection: Connection, parked: Sequence[Parked]) -> set[WorkKey]:
        sql = f"SELECT 1 FROM outbox_parked WHERE {_ROW} AND lane = ? AND state = ? AND attempts = ? AND error = ?"
        return {
            one.key
            for one in parked
            if connection.exec_driver_sql(sql, (*one.key, one.lane, one.state, one.attempts, one.error)).first()
        }


def later(seconds: float) -> str:
    """A modifier for SQLite's date functions."""
    return f"{seconds:+.3f} seconds"


def _each(connection: Connection, sql: str, rows: list[tuple[Any, ...]]) -> int:
    return connection.exec_driver_sql(sql, rows).rowcount if rows else 0
