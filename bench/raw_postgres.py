"""PostgreSQL by psycopg alone: one statement claims and reads, one deletes and writes the receipts.

Rows are deleted by the addresses that the claim left them at. By key, in a join with an array, each key was in some
runs searched through the whole table: the planner cannot see how many the array has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import psycopg
from sqlalchemy import make_url

from bench.raw_loop import LEASE_SECONDS, OWNER, Position, Row, Taken, all_or_nothing

CLAIM = f"""
WITH c AS MATERIALIZED (
    SELECT partition_no, id, dest FROM outbox_ready
    WHERE partition_no >= %s AND leased_until <= clock_timestamp()
    ORDER BY partition_no, id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE outbox_ready r SET owner = '{OWNER}', token = %s, claims = r.claims + 1,
    leased_until = clock_timestamp() + interval '{LEASE_SECONDS} s'
FROM c JOIN outbox_event e ON e.id = c.id
WHERE r.partition_no = c.partition_no AND r.id = c.id AND r.dest = c.dest
RETURNING r.partition_no, r.id, e.event_id, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id,
    e.event_key, to_char(e.occurred_at, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), e.headers, e.content_type, e.payload,
    e.destination, e.routing_key, r.ctid::text
"""
SETTLE = f"""
WITH gone AS (
    DELETE FROM outbox_ready WHERE ctid = ANY(%s::tid[]) AND owner = '{OWNER}' AND token = %s RETURNING 1)
INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)
SELECT k.id, 0, clock_timestamp(), '{OWNER}', %s, k.at_partition, k.at_offset
FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) AS k(id, at_partition, at_offset)
WHERE 1 / (SELECT (count(*) = %s)::int FROM gone) = 1
"""
PINS = ("SET enable_seqscan = off", "SET enable_hashjoin = off", "SET enable_mergejoin = off", "SET timezone = 'UTC'")


class RawPostgres:
    """Autocommit: each statement is its own transaction, which saves BEGIN and COMMIT."""

    def __init__(self, url: str) -> None:
        self._cursor = connect(url).cursor(binary=True)  # payloads come as bytes instead of as hexadecimal text
        self._token = time.time_ns()
        self._start = 0

    def take(self, limit: int) -> Taken:
        """Begins at the partition where the last claim ended, and at the first one when that gave nothing."""
        self._token += 1
        for start in {self._start, 0}:
            rows = self._cursor.execute(CLAIM, (start, limit, self._token), prepare=True).fetchall()
            if rows:
                self._start = max(row[0] for row in rows)
                return Taken(rows, self._token)
        return Taken(())

    def settle(self, taken: Taken, positions: Sequence[Position]) -> None:
        """A row that is not ours any more divides by zero, which undoes it all."""
        parameters = (addresses(taken.rows), taken.ticket, taken.ticket, *facts(taken.rows, positions), len(taken.rows))
        self._cursor.execute(SETTLE, parameters, prepare=True)
        all_or_nothing(self._cursor.rowcount, len(taken.rows))


def connect(url: str) -> psycopg.Connection:
    """Autocommit, plans pinned."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = psycopg.connect(plain, autocommit=True, connect_timeout=5)
    for pin in PINS:
        connection.execute(pin)
    return connection


def addresses(rows: Sequence[Row]) -> str:
    """Where the work rows lie (ctid), as an array."""
    return '{"' + '","'.join([row[-1] for row in rows]) + '"}'


def facts(rows: Sequence[Row], positions: Sequence[Position]) -> tuple[str, str, str]:
    """Ids, broker partitions and offsets, each as an array."""
    return array(row[1] for row in rows), array(p[0] for p in positions), array(p[1] for p in positions)


def array(values: Iterable[int | None]) -> str:
    """As PostgreSQL writes it; the driver would look at every element of a list."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"
