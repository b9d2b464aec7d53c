"""MySQL 5.7 and MariaDB before 10.6, which lack SKIP LOCKED: one UPDATE sets owner and token, which then tell the rows.

Relays that meet in one partition wait for each other for the length of a claim; so that they never wait in a circle, a
transaction takes rows of one range, and what lies before the start is left to another one. The UPDATE passes over rows
that are not committed yet (READ COMMITTED reads them semi-consistently): an open business transaction holds up nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from ..raw import fetch
from ..workrows.mysql import LATER, microseconds
from . import Wanted, WorkRow


class CompareAndSetClaim:
    """Lease in key order, then read by owner and token."""

    peek = None
    one_range = True

    def claim(self, connection: Connection, wanted: Wanted) -> Sequence[WorkRow]:
        def take(partitions: str, limit: int) -> Sequence[WorkRow]:
            taken = connection.exec_driver_sql(
                "UPDATE outbox_ready FORCE INDEX (PRIMARY)"
                f" SET leased_until = {LATER}, owner = %s, token = %s, claims = claims + 1"
                f" WHERE {partitions} AND leased_until <= UTC_TIMESTAMP(6)"
                f" ORDER BY partition_no, id, dest LIMIT {limit:d}",
                (microseconds(wanted.lease), *wanted.fence),
            ).rowcount
            if not taken:
                return []
            # The same range again; LIMIT ends it at the last row taken instead of at the end of the backlog.
            return fetch(
                connection,
                "SELECT partition_no, id, dest, lane, attempts, claims FROM outbox_ready FORCE INDEX (PRIMARY)"
                f" WHERE {partitions} AND owner = %s AND token = %s ORDER BY partition_no, id, dest LIMIT {taken:d}",
                tuple(wanted.fence),
            )

        if wanted.below is not None:
            return take(f"partition_no < {wanted.below:d}", wanted.limit)
        return take(f"partition_no >= {wanted.start:d}", wanted.limit)
