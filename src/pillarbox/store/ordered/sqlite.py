"""SQLite. One statement for each row, prepared once: there is no round trip to save, and the write lock is ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from ...ports import Aside, Hold, Progress, Sent
from ..workrows.sqlite import LATER, NOW, RECEIPT_AGAIN, later
from .ownership import lease_ms
from .reading import SqliteSpans
from .statements import Key, Keyed, Receipt, Renewal


class SqliteStatements(SqliteSpans):
    """See :class:`.Statements`."""

    def advance(self, connection: Connection, renewal: Renewal, progress: Sequence[Progress]) -> int:
        """A statement for each partition."""
        sql = (
            f"UPDATE outbox_partition SET leased_until = {LATER}, lease_ms = ?, low_id = ?, handed_to = ?,"
            " careful_to = ?, crashes = ? WHERE partition_no = ? AND token = ? AND nonce = ? AND owner = ?"
        )
        lease = (later(renewal.lease), lease_ms(renewal.lease))
        rows: list[tuple[Any, ...]] = [
            (*lease, low, handed, careful, crashes, *tenure, renewal.owner)
            for tenure, low, handed, careful, crashes in progress
        ]
        return _each(connection, sql, rows)

    def find(self, connection: Connection, keyed: Keyed, keys: Sequence[Key]) -> set[Key]:
        """Look-ups by key."""
        sql = f"SELECT 1 FROM {keyed.table} WHERE {_row(keyed)}"
        return {key for key in keys if connection.exec_driver_sql(sql, tuple(key)).first()}

    def delete(self, connection: Connection, keyed: Keyed, keys: Sequence[Key]) -> int:
        """Look-ups by key."""
        return _each(connection, f"DELETE FROM {keyed.table} WHERE {_row(keyed)}", [tuple(key) for key in keys])

    def add_receipts(self, connection: Connection, relay: str, receipts: Sequence[Receipt], *, again: bool) -> None:
        """A row each."""
        sql = (
            "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)"
            f" VALUES (?, ?, {NOW}, ?, ?, ?, ?){RECEIPT_AGAIN if again else ''}"
        )
        _each(connection, sql, [(i, d, relay, t, p, o) for i, d, t, p, o in receipts])

    def park(self, connection: Connection, rows: Sequence[Aside]) -> None:
        """strftime gives NULL for a NULL modifier."""
        sql = (
            "INSERT INTO outbox_parked"
            " (partition_no, lane, id, dest, state, due_at, attempts, claims, target, error, error_at)"
            f" VALUES (?, ?, ?, ?, ?, {LATER}, ?, 0, ?, ?, {NOW}) ON CONFLICT (partition_no, lane, id, dest) DO UPDATE"
            " SET state = excluded.state, due_at = excluded.due_at, attempts = excluded.attempts, claims = 0,"
            " target = excluded.target, error = excluded.error, error_at = excluded.error_at"
        )
        values: list[tuple[Any, ...]] = [
            (n, stream.lane, number, dest, state, _due(due_in), attempts, stream.target, error)
            for (n, number, dest), stream, state, due_in, attempts, error in rows
        ]
        _each(connection, sql, values)

    def hold(self, connection: Connection, holds: Sequence[Hold]) -> None:
        """A row each."""
        sql = (
            "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, due_at, since, destination, reason)"
            f" VALUES (?, ?, ?, ?, ?, {LATER}, {NOW}, ?, ?) ON CONFLICT (partition_no, lane, target) DO UPDATE"
            " SET mode = excluded.mode, head_id = excluded.head_id, due_at = excluded.due_at,"
            " destination = excluded.destination, reason = excluded.reason"
        )
        values: list[tuple[Any, ...]] = [
            (*stream, mode, head_id, _due(due_in), destination, reason)
            for stream, mode, head_id, due_in, destination, reason in holds
        ]
        _each(connection, sql, values)

    def settle_sent(
        self, connection: Connection, renewal: Renewal, progress: Sequence[Progress], sent: Sequence[Sent]
    ) -> bool:
        """Nothing to save."""
        return False


def _row(keyed: Keyed) -> str:
    return " AND ".join(f"{name} = ?" for name in keyed.columns)


def _due(due_in: float | None) -> str | None:
    return None if due_in is None else later(due_in)


def _each(connection: Connection, sql: str, rows: list[tuple[Any, ...]]) -> int:
    return connection.exec_driver_sql(sql, rows).rowcount if rows else 0
