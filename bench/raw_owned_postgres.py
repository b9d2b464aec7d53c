"""PostgreSQL by psycopg, all partitions owned."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.raw_loop import LEASE_SECONDS, OWNER, Position, Row, Taken, all_or_nothing
from bench.raw_owned import EVENT, REST, Round, last_ids, owned
from bench.raw_postgres import addresses, array, connect, facts


class OwnedPostgres:
    """PostgreSQL by psycopg: a settlement is one statement, in which a lost row or partition divides by zero.

    Rows are found by their address (ctid) and checked by their id, which costs less than a search for each key.
    """

    READ = (
        f'SELECT r.partition_no, r.id, {EVENT}, to_char(e.occurred_at, \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\'), {REST},'
        " r.at::text FROM (SELECT ctid AS at, partition_no, id FROM outbox_ready {} LIMIT %s) r"
        " JOIN outbox_event e ON e.id = r.id"
    )
    ONE = READ.format("WHERE partition_no = %s AND id > %s ORDER BY id")
    ALL = READ.format("ORDER BY partition_no, id")
    SETTLE = (
        f"WITH fence AS (UPDATE outbox_partition p SET leased_until = clock_timestamp() + interval '{LEASE_SECONDS} s',"
        " handed_to = s.last FROM unnest(%s::smallint[], %s::bigint[]) AS s(no, last)"
        f" WHERE p.partition_no = s.no AND p.owner = '{OWNER}' AND p.token = %s AND p.nonce = %s RETURNING 1),"
        " gone AS (DELETE FROM outbox_ready d USING unnest(%s::tid[], %s::bigint[]) AS k(at, id)"
        " WHERE d.ctid = k.at AND d.id = k.id RETURNING 1)"
        " INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)"
        f" SELECT k.id, 0, clock_timestamp(), '{OWNER}', %s, k.at_partition, k.at_offset"
        " FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) AS k(id, at_partition, at_offset)"
        " WHERE 1 / (SELECT (count(*) = %s)::int FROM gone) = 1 AND 1 / (SELECT (count(*) = %s)::int FROM fence) = 1"
    )

    def __init__(self, url: str, *, ahead: bool = True) -> None:
        self._cursor = connect(url).cursor(binary=True)
        self._token, self._nonce = 1, time.time_ns()
        self._round = Round(self._read, self._read_all, ahead)
        self._cursor.execute(
            "INSERT INTO outbox_partition (partition_no, owner, token, nonce)"
            f" VALUES {owned(self._token, self._nonce)}"
            " ON CONFLICT (partition_no) DO UPDATE"
            " SET owner = excluded.owner, token = excluded.token, nonce = excluded.nonce"
        )

    def take(self, limit: int) -> Taken:
        return Taken(self._round.take(limit))

    def _read(self, partition_no: int, after: int, limit: int) -> Sequence[Row]:
        return self._cursor.execute(self.ONE, (partition_no, after, limit), prepare=True).fetchall()

    def _read_all(self, limit: int) -> Sequence[Row]:
        return self._cursor.execute(self.ALL, (limit,), prepare=True).fetchall()

    def settle(self, taken: Taken, positions: Sequence[Position]) -> None:
        last = last_ids(taken.rows)
        ids, *where = facts(taken.rows, positions)
        fence = (array(last), array(last.values()), self._token, self._nonce)
        counts = (len(taken.rows), len(last))
        parameters = (*fence, addresses(taken.rows), ids, self._token, ids, *where, *counts)
        self._cursor.execute(self.SETTLE, parameters, prepare=True)
        all_or_nothing(self._cursor.rowcount, len(taken.rows))
