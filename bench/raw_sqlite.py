"""SQLite by sqlite3 alone."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from sqlalchemy import make_url

from bench.raw_loop import LEASE_SECONDS, OWNER, Position, Row, Taken, all_or_nothing

NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
TAKE = f"""
UPDATE outbox_ready SET owner = '{OWNER}', token = ?, claims = claims + 1,
    leased_until = strftime('%Y-%m-%d %H:%M:%f', 'now', '+{LEASE_SECONDS} seconds')
WHERE (partition_no, id, dest) IN (
    SELECT partition_no, id, dest FROM outbox_ready
    WHERE partition_no >= ? AND leased_until <= {NOW} ORDER BY partition_no, id LIMIT ?)
"""
READ = f"""
SELECT r.partition_no, r.id, e.event_id, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
    e.event_key, replace(e.occurred_at, ' ', 'T') || 'Z', e.headers, e.content_type, e.payload, e.destination,
    e.routing_key
FROM outbox_ready r CROSS JOIN outbox_event e ON e.id = r.id
WHERE r.partition_no >= ? AND r.owner = '{OWNER}' AND r.token = ? ORDER BY r.partition_no, r.id LIMIT ?
"""
DELETE = f"DELETE FROM outbox_ready WHERE partition_no = ? AND id = ? AND dest = 0 AND owner = '{OWNER}' AND token = ?"
RECEIPT = f"INSERT INTO outbox_receipt VALUES (?, 0, {NOW}, '{OWNER}', ?, ?, ?)"


class RawSQLite:
    """Explicit transactions; the journal mode is the file's (WAL, as it was filled)."""

    def __init__(self, url: str) -> None:
        self._connection = connect(url)
        self._token = time.time_ns()
        self._start = 0

    def take(self, limit: int) -> Taken:
        """Begins at the partition where the last claim ended, and at the first one when that gave nothing."""
        self._token += 1
        self._connection.execute("BEGIN IMMEDIATE")
        rows = self._claim_from(self._start, limit)
        if not rows and self._start:
            rows = self._claim_from(0, limit)
        self._connection.execute("COMMIT")
        self._start = rows[-1][0] if rows else 0
        return Taken(rows, self._token)

    def _claim_from(self, start: int, limit: int) -> Sequence[Row]:
        taken = self._connection.execute(TAKE, (self._token, start, limit)).rowcount
        return self._connection.execute(READ, (start, self._token, taken)).fetchall() if taken else ()

    def settle(self, taken: Taken, positions: Sequence[Position]) -> None:
        token = taken.ticket
        self._connection.execute("BEGIN IMMEDIATE")
        gone = self._connection.executemany(DELETE, [(r[0], r[1], token) for r in taken.rows]).rowcount
        all_or_nothing(gone, len(taken.rows))
        facts = [(row[1], token, *position) for row, position in zip(taken.rows, positions, strict=True)]
        self._connection.executemany(RECEIPT, facts)
        self._connection.execute("COMMIT")


def connect(url: str) -> sqlite3.Connection:
    """Durable at each commit; transactions begin when they are told to."""
    database = make_url(url).database
    assert database
    connection = sqlite3.connect(database, timeout=10, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection
