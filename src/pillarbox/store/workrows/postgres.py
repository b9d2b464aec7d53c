"""PostgreSQL. Keys come as arrays and lead to row addresses (ctid), one index look-up each.

A plain join of keys and table would leave the planner the choice to walk the whole table and compare each row with the
keys, which it takes when the table was last analysed while empty. LATERAL with OFFSET 0 cannot be turned round. The
fence stands in the outer statement: PostgreSQL checks it again on the newest version of a row that somebody changed
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection

from ...ports import Parked, Sent, WorkKey
from ..raw import fetch, numbers
from . import Fence

RECEIPT_AGAIN: Final = (
    " ON CONFLICT (id, dest) DO UPDATE SET sent_at = excluded.sent_at, relay = excluded.relay, token = excluded.token,"
    " broker_partition = excluded.broker_partition, broker_offset = excluded.broker_offset"
)

_FENCED: Final = (
    "ctid = ANY(ARRAY(SELECT found.ctid FROM unnest(%s::smallint[], %s::bigint[], %s::smallint[]) AS k(p, i, d)"
    " CROSS JOIN LATERAL (SELECT r.ctid FROM outbox_ready r"
    " WHERE r.partition_no = k.p AND r.id = k.i AND r.dest = k.d OFFSET 0) AS found))"
    " AND owner = %s AND token = %s"
)


class PostgresRows:
    """See :class:`.WorkRows`."""

    def remove(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> int:
        return _change(connection, f"DELETE FROM outbox_ready WHERE {_FENCED}", keys, fence)

    def ours(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> set[WorkKey]:
        return _carrying(connection, keys, fence, " FOR UPDATE")

    def give_back(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> int:
        back = "leased_until = '1970-01-01 00:00:00+00', owner = '', claims = GREATEST(claims - 1, 0)"
        return _change(connection, f"UPDATE outbox_ready SET {back} WHERE {_FENCED}", keys, fence)

    def given_back(self, connection: Connection, keys: Sequence[WorkKey], token: int) -> set[WorkKey]:
        return _carrying(connection, keys, Fence("", token), "")

    def extend(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence, seconds: float) -> int:
        until = "leased_until = clock_timestamp() + %s::float8 * interval '1 second'"
        return _change(connection, f"UPDATE outbox_ready SET {until} WHERE {_FENCED}", keys, fence, seconds)

    def add_receipts(self, connection: Connection, sent: Sequence[Sent], fence: Fence, *, again: bool) -> None:
        if not sent:
            return
        keys, partitions, offsets = zip(*sent, strict=True)
        _, ids, dests = _arrays(keys)
        connection.exec_driver_sql(
            "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)"
            " SELECT k.i, k.d, clock_timestamp(), %s, %s, k.p, k.o"
            " FROM unnest(%s::bigint[], %s::smallint[], %s::int[], %s::bigint[]) AS k(i, d, p, o)"
            + (RECEIPT_AGAIN if again else ""),
            (*fence, ids, dests, numbers(partitions), numbers(offsets)),
        )

    def with_receipt(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> set[WorkKey]:
        sql = "SELECT id, dest FROM outbox_receipt WHERE id = ANY(%s::bigint[]) AND relay = %s AND token = %s"
        there = set(fetch(connection, sql, (numbers(key.id for key in keys), *fence))) if keys else set()
        return {key for key in keys if (key.id, key.dest) in there}

    def add_parked(self, connection: Connection, parked: Sequence[Parked]) -> None:
        if not parked:
            return
        connection.exec_driver_sql(
            "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, due_at, attempts, error, error_at)"
            " SELECT k.p, k.l, k.i, k.d, k.s, clock_timestamp() + k.due * interval '1 second', k.a, k.e,"
            " clock_timestamp() FROM unnest(%s::smallint[], %s::bigint[], %s::smallint[], %s::bigint[], %s::text[],"
            " %s::float8[], %s::smallint[], %s::text[]) AS k(p, i, d, l, s, due, a, e)"
            " ON CONFLICT (partition_no, lane, id, dest) DO UPDATE SET state = excluded.state,"
            " due_at = excluded.due_at, attempts = excluded.attempts, error = excluded.error,"
            " error_at = excluded.error_at",
            (
                *_arrays([one.key for one in parked]),
                numbers(one.lane for one in parked),
                [one.state for one in parked],
                [one.due_in for one in parked],
                numbers(one.attempts for one in parked),
                [one.error for one in parked],
            ),
        )

    def are_parked(self, connection: Connection, parked: Sequence[Parked]) -> set[WorkKey]:
        if not parked:
            return set()
        rows = fetch(
            connection,
            "SELECT found.* FROM unnest(%s::smallint[], %s::bigint[], %s::smallint[], %s::bigint[]) AS k(p, i, d, l)"
            " CROSS JOIN LATERAL (SELECT r.partition_no, r.id, r.dest, r.state, r.attempts, r.error"
            " FROM outbox_parked r WHERE r.partition_no = k.p AND r.lane = k.l AND r.id = k.i AND r.dest = k.d"
            " OFFSET 0) AS found",
            (*_arrays([one.key for one in parked]), numbers(one.lane for one in parked)),
        )
        there = set(rows)
        return {one.key for one in parked if (*one.key, one.state, one.attempts, one.error) in there}


def _arrays(keys: Sequence[WorkKey]) -> tuple[str, str, str]:
    partitions, ids, dests = zip(*keys, strict=True)
    return numbers(partitions), numbers(ids), numbers(dests)


def _change(connection: Connection, sql: str, keys: Sequence[WorkKey], fence: Fence, *first: Any) -> int:
    return connection.exec_driver_sql(sql, (*first, *_arrays(keys), *fence)).rowcount if keys else 0


def _carrying(connection: Connection, keys: Sequence[WorkKey], fence: Fence, lock: str) -> set[WorkKey]:
    if not keys:
        return set()
    sql = f"SELECT partition_no, id, dest FROM outbox_ready WHERE {_FENCED}{lock}"
    return set(map(WorkKey._make, fetch(connection, sql, (*_arrays(keys), *fence))))
