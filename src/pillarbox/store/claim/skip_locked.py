"""MySQL 8+ and MariaDB 10.6+: rows that another relay holds right now are skipped, not waited for."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from ..raw import fetch, in_parts
from ..workrows.mysql import KEYS_PER_STATEMENT, LATER, microseconds, named
from . import Wanted, WorkRow, from_start_on


class SkipLockedClaim:
    """Read and lock in key order, then lease the same rows by key."""

    peek = None
    one_range = False

    def claim(self, connection: Connection, wanted: Wanted) -> Sequence[WorkRow]:
        def take(partitions: str, limit: int) -> Sequence[WorkRow]:
            # One ordered range of PRIMARY. READ COMMITTED locks no gap, so business inserts never wait for this.
            return fetch(
                connection,
                "SELECT partition_no, id, dest, lane, attempts, claims + 1 FROM outbox_ready FORCE INDEX (PRIMARY)"
                f" WHERE {partitions} AND leased_until <= UTC_TIMESTAMP(6)"
                f" ORDER BY partition_no, id, dest LIMIT {limit:d} FOR UPDATE SKIP LOCKED",
            )

        rows = from_start_on(wanted, take)
        for part in in_parts(rows, KEYS_PER_STATEMENT):
            connection.exec_driver_sql(
                "UPDATE outbox_ready FORCE INDEX (PRIMARY)"
                f" SET leased_until = {LATER}, owner = %s, token = %s, claims = claims + 1 WHERE {named(part)}",
                (microseconds(wanted.lease), *wanted.fence),
            )
        return rows
