"""MySQL and MariaDB by PyMySQL alone, old and new: claim by one UPDATE under a fresh token, then read by that token.

`SELECT … FOR UPDATE SKIP LOCKED` and an UPDATE by keys do the same for several workers, and were no faster for one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pymysql
from sqlalchemy import make_url

from bench.raw_loop import LEASE_SECONDS, OWNER, Position, Row, Taken, all_or_nothing

TAKE = f"""
UPDATE outbox_ready SET owner = '{OWNER}', token = %s, claims = claims + 1,
    leased_until = UTC_TIMESTAMP(6) + INTERVAL {LEASE_SECONDS} SECOND
WHERE partition_no >= %s AND leased_until <= UTC_TIMESTAMP(6) ORDER BY partition_no, id LIMIT %s
"""
READ = f"""
SELECT STRAIGHT_JOIN r.partition_no, r.id, e.event_id, e.event_type, e.schema_version, e.aggregate_type,
    e.aggregate_id, e.event_key, DATE_FORMAT(e.occurred_at, '%%Y-%%m-%%dT%%H:%%i:%%s.%%fZ'), e.headers,
    e.content_type, e.payload, e.destination, e.routing_key
FROM outbox_ready r JOIN outbox_event e ON e.id = r.id
WHERE r.partition_no >= %s AND r.owner = '{OWNER}' AND r.token = %s ORDER BY r.partition_no, r.id LIMIT %s
"""
DELETE = f"""
DELETE FROM outbox_ready WHERE partition_no >= %s AND owner = '{OWNER}' AND token = %s
ORDER BY partition_no, id LIMIT %s
"""
RECEIPTS = "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset) VALUES "


class RawMySQL:
    """READ COMMITTED; the claim is one autocommitted statement, the settlement one transaction of two."""

    def __init__(self, url: str) -> None:
        self._connection = connect(url)
        self._cursor = self._connection.cursor()
        self._token = time.time_ns()
        self._start = 0

    def take(self, limit: int) -> Taken:
        """Begins at the partition where the last claim ended, and at the first one when that gave nothing."""
        self._token += 1
        for start in {self._start, 0}:
            count = self._cursor.execute(TAKE, (self._token, start, limit))
            if count:
                self._cursor.execute(READ, (start, self._token, count))
                rows = self._cursor.fetchall()
                self._start = rows[-1][0]
                return Taken(rows, (start, self._token))
        return Taken(())

    def settle(self, taken: Taken, positions: Sequence[Position]) -> None:
        start, token = taken.ticket
        self._cursor.execute("BEGIN")
        gone = self._cursor.execute(DELETE, (start, token, len(taken.rows)))
        all_or_nothing(gone, len(taken.rows))
        self._cursor.execute(receipts(taken.rows, positions, token))
        self._connection.commit()


def connect(url: str) -> pymysql.Connection[pymysql.cursors.Cursor]:
    """READ COMMITTED, autocommit unless BEGIN is said."""
    place = make_url(url)
    return pymysql.connect(
        host=place.host,
        port=place.port or 3306,
        user=place.username,
        password=place.password or "",
        database=place.database,
        autocommit=True,
        connect_timeout=5,
        read_timeout=60,
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )


def receipts(rows: Sequence[Row], positions: Sequence[Position], token: int) -> str:
    """One INSERT of a receipt for each row."""
    shared = f"0,UTC_TIMESTAMP(6),'{OWNER}',{token}"
    values = [
        f"({row[1]},{shared},{'NULL' if at is None else at},{'NULL' if offset is None else offset})"
        for row, (at, offset) in zip(rows, positions, strict=True)
    ]
    return RECEIPTS + ",".join(values)
