"""SQLite: one writer at a time (BEGIN IMMEDIATE), so reading first and leasing then is safe.

(``FOR UPDATE SKIP LOCKED`` would be dropped silently by SQLAlchemy, not refused.)
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from ..raw import fetch
from ..workrows.sqlite import LATER, NOW, later
from . import Wanted, WorkRow, from_start_on


class SqliteClaim:
    """Works with every SQLite since 3.24: no RETURNING, no UPDATE … LIMIT."""

    one_range = False

    def peek(self, connection: Connection) -> bool:
        found = connection.exec_driver_sql(f"SELECT 1 FROM outbox_ready WHERE leased_until <= {NOW} LIMIT 1")
        return found.first() is not None

    def claim(self, connection: Connection, wanted: Wanted) -> Sequence[WorkRow]:
        def take(partitions: str, limit: int) -> Sequence[WorkRow]:
            return fetch(
                connection,
                "SELECT partition_no, id, dest, lane, attempts, claims + 1 FROM outbox_ready"
                f" WHERE {partitions} AND leased_until <= {NOW} ORDER BY partition_no, id, dest LIMIT ?",
                (limit,),
            )

        rows = from_start_on(wanted, take)
        if rows:
            connection.exec_driver_sql(
                f"UPDATE outbox_ready SET leased_until = {LATER}, owner = ?, token = ?, claims = claims + 1"
                " WHERE partition_no = ? AND id = ? AND dest = ?",
                [(later(wanted.lease), *wanted.fence, *row[:3]) for row in rows],
            )
        return rows
