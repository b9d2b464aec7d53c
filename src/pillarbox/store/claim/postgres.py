"""PostgreSQL: find, lock and lease in one statement.

The rows are chosen in a MATERIALIZED part, which runs once; ``id IN (SELECT … LIMIT … SKIP LOCKED)`` may run again for
each row and claim too many. They are then updated by address (ctid), which leaves the planner no join to choose.
FOR NO KEY UPDATE is what the UPDATE itself takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from ..raw import fetch
from . import Wanted, WorkRow, from_start_on


class PostgresClaim:
    """One statement; RETURNING has no order, so the rows are sorted here."""

    peek = None
    one_range = False

    def claim(self, connection: Connection, wanted: Wanted) -> Sequence[WorkRow]:
        def take(partitions: str, limit: int) -> Sequence[WorkRow]:
            # One ordered range of the primary key. (SELECT clock_timestamp()) is evaluated once, not for each row.
            rows = fetch(
                connection,
                "WITH chosen AS MATERIALIZED (SELECT ctid FROM outbox_ready"
                f" WHERE {partitions} AND leased_until <= (SELECT clock_timestamp())"
                " ORDER BY partition_no, id, dest LIMIT %s::int FOR NO KEY UPDATE SKIP LOCKED)"
                " UPDATE outbox_ready SET leased_until = clock_timestamp() + %s::float8 * interval '1 second',"
                " owner = %s, token = %s, claims = claims + 1"
                " WHERE ctid = ANY(ARRAY(SELECT ctid FROM chosen))"
                " RETURNING partition_no, id, dest, lane, attempts, claims",
                (limit, wanted.lease, *wanted.fence),
            )
            return sorted(rows)

        return from_start_on(wanted, take)
