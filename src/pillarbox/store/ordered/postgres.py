"""PostgreSQL. Keys come as arrays and lead to row addresses (ctid), one index look-up each.

A plain join of keys and table would leave the planner the choice to walk the whole table. LATERAL with OFFSET 0 cannot
be turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from ...ports import Aside, Hold, Progress, Sent
from ..raw import fetch, numbers
from ..workrows.postgres import RECEIPT_AGAIN
from .ownership import lease_ms
from .reading import PostgresSpans
from .statements import Key, Keyed, Receipt, Renewal

_DUE: Final = "clock_timestamp() + k.due * interval '1 second'"
_ADVANCE: Final = (
    "UPDATE outbox_partition p SET leased_until = clock_timestamp() + %s::float8 * interval '1 second', lease_ms = %s,"
    " low_id = k.low, handed_to = k.handed, careful_to = k.careful, crashes = k.crashes"
    " FROM unnest(%s::smallint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::smallint[])"
    " AS k(n, token, nonce, low, handed, careful, crashes)"
    " WHERE p.partition_no = k.n AND p.token = k.token AND p.nonce = k.nonce AND p.owner = %s"
)
_RECEIPTS: Final = (
    "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)"
    " SELECT k.i, k.d, clock_timestamp(), %s, k.t, k.p, k.o"
    " FROM unnest(%s::bigint[], %s::smallint[], %s::bigint[], %s::int[], %s::bigint[]) AS k(i, d, t, p, o)"
)


def _at(keyed: Keyed) -> str:
    """A condition for the rows whose keys come as arrays, one for each column."""
    types = {"partition_no": "smallint", "dest": "smallint"}
    arrays = ", ".join(f"%s::{types.get(name, 'bigint')}[]" for name in keyed.columns)
    match = " AND ".join(f"r.{name} = k.{name}" for name in keyed.columns)
    return (
        f"ctid = ANY(ARRAY(SELECT found.ctid FROM unnest({arrays}) AS k({', '.join(keyed.columns)})"
        f" CROSS JOIN LATERAL (SELECT r.ctid FROM {keyed.table} r WHERE {match} OFFSET 0) AS found))"
    )


# All or nothing: unless as many partitions and rows were ours as expected, the condition divides by zero.
_SETTLE_SENT: Final = (
    "WITH k AS MATERIALIZED (SELECT *"
    " FROM unnest(%s::smallint[], %s::bigint[], %s::smallint[], %s::int[], %s::bigint[])"
    f" AS k(partition_no, id, dest, p, o)), mine AS ({_ADVANCE} RETURNING 1),"
    " gone AS (DELETE FROM outbox_ready WHERE ctid = ANY(ARRAY(SELECT found.ctid FROM k CROSS JOIN LATERAL"
    " (SELECT r.ctid FROM outbox_ready r WHERE r.partition_no = k.partition_no AND r.id = k.id AND r.dest = k.dest"
    " OFFSET 0) AS found)) RETURNING 1)"
    " INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)"
    " SELECT k.id, k.dest, clock_timestamp(), %s, (%s::bigint[])[k.partition_no + 1], k.p, k.o FROM k"
    " WHERE 1 / ((SELECT count(*) FROM mine) = %s AND (SELECT count(*) FROM gone) = %s)::int = 1"
)


class PostgresStatements(PostgresSpans):
    """See :class:`.Statements`."""

    def advance(self, connection: Connection, renewal: Renewal, progress: Sequence[Progress]) -> int:
        """One statement for all partitions of a round."""
        return connection.exec_driver_sql(_ADVANCE, _advance(renewal, progress)).rowcount

    def find(self, connection: Connection, keyed: Keyed, keys: Sequence[Key]) -> set[Key]:
        """By address."""
        if not keys:
            return set()
        sql = f"SELECT {', '.join(keyed.columns)} FROM {keyed.table} WHERE {_at(keyed)} FOR UPDATE"
        return set(fetch(connection, sql, _arrays(keys)))

    def delete(self, connection: Connection, keyed: Keyed, keys: Sequence[Key]) -> int:
        """By address."""
        if not keys:
            return 0
        return connection.exec_driver_sql(f"DELETE FROM {keyed.table} WHERE {_at(keyed)}", _arrays(keys)).rowcount

    def add_receipts(self, connection: Connection, relay: str, receipts: Sequence[Receipt], *, again: bool) -> None:
        """Asking for the conflict costs half as much again."""
        if receipts:
            connection.exec_driver_sql(_RECEIPTS + (RECEIPT_AGAIN if again else ""), (relay, *_arrays(receipts)))

    def park(self, connection: Connection, rows: Sequence[Aside]) -> None:
        """One statement."""
        if not rows:
            return
        connection.exec_driver_sql(
            "INSERT INTO outbox_parked"
            " (partition_no, lane, id, dest, state, due_at, attempts, claims, target, error, error_at)"
            f" SELECT k.n, k.l, k.i, k.d, k.s, {_DUE}, k.a, 0, k.t, k.e, clock_timestamp()"
            " FROM unnest(%s::smallint[], %s::bigint[], %s::bigint[], %s::smallint[], %s::text[], %s::float8[],"
            " %s::smallint[], %s::bigint[], %s::text[]) AS k(n, l, i, d, s, due, a, t, e)"
            " ON CONFLICT (partition_no, lane, id, dest) DO UPDATE SET state = excluded.state,"
            " due_at = excluded.due_at, attempts = excluded.attempts, claims = 0, target = excluded.target,"
            " error = excluded.error, error_at = excluded.error_at",
            (
                numbers(one.key.partition_no for one in rows),
                numbers(one.stream.lane for one in rows),
                numbers(one.key.id for one in rows),
                numbers(one.key.dest for one in rows),
                [one.state for one in rows],
                [one.due_in for one in rows],
                numbers(one.attempts for one in rows),
                numbers(one.stream.target for one in rows),
                [one.error for one in rows],
            ),
        )

    def hold(self, connection: Connection, holds: Sequence[Hold]) -> None:
        """One statement."""
        if not holds:
            return
        connection.exec_driver_sql(
            "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, due_at, since, destination, reason)"
            f" SELECT k.n, k.l, k.t, k.m, k.h, {_DUE}, clock_timestamp(), k.w, k.r"
            " FROM unnest(%s::smallint[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::float8[],"
            " %s::text[], %s::text[]) AS k(n, l, t, m, h, due, w, r)"
            " ON CONFLICT (partition_no, lane, target) DO UPDATE SET mode = excluded.mode, head_id = excluded.head_id,"
            " due_at = excluded.due_at, destination = excluded.destination, reason = excluded.reason",
            (
                *_arrays([one.stream for one in holds]),
                [one.mode for one in holds],
                numbers(one.head_id for one in holds),
                [one.due_in for one in holds],
                [one.destination for one in holds],
                [one.reason for one in holds],
            ),
        )

    def settle_sent(
        self, connection: Connection, renewal: Renewal, progress: Sequence[Progress], sent: Sequence[Sent]
    ) -> bool:
        """One statement, one commit, one round trip."""
        keys, partitions, offsets = zip(*sent, strict=True)
        tokens = [0] * (max(one.tenure.partition_no for one in progress) + 1)
        for tenure, *_ in progress:
            tokens[tenure.partition_no] = tenure.token
        parameters = (
            *_arrays(keys),
            numbers(partitions),
            numbers(offsets),
            *_advance(renewal, progress),
            renewal.owner,
            numbers(tokens),
            len(progress),
            len(sent),
        )
        connection.exec_driver_sql(_SETTLE_SENT, parameters)
        return True


def _advance(renewal: Renewal, progress: Sequence[Progress]) -> tuple[object, ...]:
    rows = [(*one.tenure, one.low_id, one.handed_to, one.careful_to, one.crashes) for one in progress]
    return (renewal.lease, lease_ms(renewal.lease), *_arrays(rows), renewal.owner)


def _arrays(rows: Sequence[tuple[int | None, ...]]) -> tuple[str, ...]:
    """An array for each column."""
    return tuple([numbers(column) for column in zip(*rows, strict=True)])
