"""The due mover: parked rows whose time has come go back to the queue, attempts kept. DEAD rows have no time.

The index (state, due_at, partition_no, id) is read in order from its start up to now, and not beyond.
"""

from __future__ import annotations

from sqlalchemy import Connection

from .capabilities import Capabilities
from .raw import fetch, in_parts
from .workrows.mysql import parked_key
from .workrows.sqlite import NOW

_ROWS_PER_DELETE = 250


def any_due(connection: Connection) -> bool:
    """For SQLite, where moving takes the write lock: False when surely nothing is due."""
    sql = f"SELECT 1 FROM outbox_parked WHERE state = 'RETRY' AND due_at <= {NOW} LIMIT 1"
    return connection.exec_driver_sql(sql).first() is not None


def move_due(connection: Connection, capabilities: Capabilities, limit: int) -> int:
    """Move up to ``limit`` due rows in the open transaction; returns how many."""
    match capabilities.claim:
        case "postgres":
            return _postgres(connection, limit)
        case "sqlite":
            return _sqlite(connection, limit)
        case _:
            return _mysql(connection, limit, skip_locked=capabilities.skip_locked)


def _postgres(connection: Connection, limit: int) -> int:
    # clock_timestamp() itself is volatile and cannot bound an index scan; the sub-select makes a constant of it.
    return connection.exec_driver_sql(
        "WITH chosen AS MATERIALIZED (SELECT ctid FROM outbox_parked"
        " WHERE state = 'RETRY' AND due_at <= (SELECT clock_timestamp())"
        " ORDER BY due_at, partition_no, id LIMIT %s::int FOR UPDATE SKIP LOCKED),"
        " moved AS (DELETE FROM outbox_parked WHERE ctid = ANY(ARRAY(SELECT ctid FROM chosen))"
        " RETURNING partition_no, id, dest, lane, attempts)"
        " INSERT INTO outbox_ready (partition_no, id, dest, lane, attempts)"
        " SELECT partition_no, id, dest, lane, attempts FROM moved ON CONFLICT DO NOTHING",
        (limit,),
    ).rowcount


def _mysql(connection: Connection, limit: int, *, skip_locked: bool) -> int:
    # Without SKIP LOCKED two movers wait for each other and the second finds the rows gone.
    due = fetch(
        connection,
        "SELECT partition_no, lane, id, dest, attempts FROM outbox_parked FORCE INDEX (outbox_parked_due)"
        " WHERE state = 'RETRY' AND due_at <= UTC_TIMESTAMP(6)"
        f" ORDER BY state, due_at, partition_no, id LIMIT {limit:d} FOR UPDATE{' SKIP LOCKED' if skip_locked else ''}",
    )
    for part in in_parts(due, _ROWS_PER_DELETE):
        values = ",".join(
            f"({p:d},{number:d},{dest:d},{lane:d},{attempts:d})" for p, lane, number, dest, attempts in part
        )
        connection.exec_driver_sql(
            f"INSERT INTO outbox_ready (partition_no, id, dest, lane, attempts) VALUES {values}"
            " ON DUPLICATE KEY UPDATE lane = VALUES(lane)"
        )
        keys = " OR ".join(f"({parked_key(p, number, dest, lane)})" for p, lane, number, dest, _ in part)
        connection.exec_driver_sql(f"DELETE p FROM outbox_parked AS p FORCE INDEX (PRIMARY) WHERE {keys}")
    return len(due)


def _sqlite(connection: Connection, limit: int) -> int:
    due = fetch(
        connection,
        "SELECT partition_no, lane, id, dest, attempts FROM outbox_parked"
        f" WHERE state = 'RETRY' AND due_at <= {NOW} ORDER BY due_at, partition_no, id LIMIT ?",
        (limit,),
    )
    if due:
        connection.exec_driver_sql(
            "INSERT OR IGNORE INTO outbox_ready (partition_no, id, dest, lane, attempts) VALUES (?, ?, ?, ?, ?)",
            [(p, number, dest, lane, attempts) for p, lane, number, dest, attempts in due],
        )
        connection.exec_driver_sql(
            "DELETE FROM outbox_parked WHERE partition_no = ? AND lane = ? AND id = ? AND dest = ?",
            [row[:4] for row in due],
        )
    return len(due)
