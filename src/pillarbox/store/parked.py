"""The due mover of the row lease: parked rows whose time has come go to the queue, attempts and claims kept.

RETRY and SCHEDULED rows have a time. The index (state, due_at, partition_no, id) is read in order, for each state from
its start up to now, and not beyond. What stands behind a hold of its key or destination stays: that moves in order,
which only a relay that owns the partition can do.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from ..ports import EVERY_LANE
from .capabilities import Capabilities
from .raw import fetch, in_parts
from .workrows.mysql import parked_key
from .workrows.sqlite import NOW

_HELD: Final = "FROM outbox_lane l WHERE l.partition_no = p.partition_no AND l.lane = {lane} AND l.target = p.target"
_HOLDS: Final = (_HELD.format(lane="p.lane"), _HELD.format(lane=EVERY_LANE))  # each one look-up by primary key
_FREE: Final = "".join(f" AND NOT EXISTS (SELECT 1 {hold})" for hold in _HOLDS)
# Counted, because MySQL makes a join of NOT EXISTS, which need not follow the order of the index.
_FREE_ON_MYSQL: Final = "".join(f" AND (SELECT COUNT(*) {hold}) = 0" for hold in _HOLDS)
_ROWS_PER_DELETE = 250


def any_due(connection: Connection) -> bool:
    """For SQLite, where moving takes the write lock: False when surely nothing is due."""
    sql = f"SELECT 1 FROM outbox_parked p WHERE state IN ('RETRY', 'SCHEDULED') AND due_at <= {NOW}{_FREE} LIMIT 1"
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


def _due_on_postgres(name: str, state: str, limit: str) -> str:
    # clock_timestamp() itself is volatile and cannot bound an index scan; the sub-select makes a constant of it.
    return (
        f"{name} AS MATERIALIZED (SELECT ctid FROM outbox_parked p"
        f" WHERE state = '{state}' AND due_at <= (SELECT clock_timestamp()){_FREE}"
        f" ORDER BY due_at, partition_no, id LIMIT {limit} FOR UPDATE OF p SKIP LOCKED)"
    )


# A state each: a scan of both would have to sort all that is due.
_MOVE_ON_POSTGRES: Final = (
    f"WITH {_due_on_postgres('retry', 'RETRY', '%s::int')},"
    f" {_due_on_postgres('scheduled', 'SCHEDULED', '(SELECT %s::int - COUNT(*) FROM retry)')},"
    " moved AS (DELETE FROM outbox_parked"
    " WHERE ctid = ANY(ARRAY(SELECT ctid FROM retry UNION ALL SELECT ctid FROM scheduled))"
    " RETURNING partition_no, id, dest, lane, attempts, claims)"
    " INSERT INTO outbox_ready (partition_no, id, dest, lane, attempts, claims)"
    " SELECT partition_no, id, dest, lane, attempts, claims FROM moved ON CONFLICT DO NOTHING"
)


def _postgres(connection: Connection, limit: int) -> int:
    return connection.exec_driver_sql(_MOVE_ON_POSTGRES, (limit, limit)).rowcount


def _mysql(connection: Connection, limit: int, *, skip_locked: bool) -> int:
    # Without SKIP LOCKED two movers wait for each other and the second finds the rows gone.
    due = fetch(
        connection,
        "SELECT partition_no, lane, id, dest, attempts, claims FROM outbox_parked AS p FORCE INDEX (outbox_parked_due)"
        f" WHERE state IN ('RETRY', 'SCHEDULED') AND due_at <= UTC_TIMESTAMP(6){_FREE_ON_MYSQL}"
        f" ORDER BY state, due_at, partition_no, id LIMIT {limit:d} FOR UPDATE{' SKIP LOCKED' if skip_locked else ''}",
    )
    for part in in_parts(due, _ROWS_PER_DELETE):
        values = ",".join(
            f"({p:d},{number:d},{dest:d},{lane:d},{attempts:d},{claims:d})"
            for p, lane, number, dest, attempts, claims in part
        )
        connection.exec_driver_sql(
            f"INSERT INTO outbox_ready (partition_no, id, dest, lane, attempts, claims) VALUES {values}"
            " ON DUPLICATE KEY UPDATE lane = VALUES(lane)"
        )
        keys = " OR ".join(f"({parked_key(p, number, dest, lane)})" for p, lane, number, dest, *_ in part)
        # Without a column beyond the key the whole key is scanned in spite of the hint: it would cover the statement.
        connection.exec_driver_sql(
            f"DELETE p FROM outbox_parked AS p FORCE INDEX (PRIMARY) WHERE p.attempts >= 0 AND ({keys})"
        )
    return len(due)


def _sqlite(connection: Connection, limit: int) -> int:
    due = fetch(
        connection,
        "SELECT partition_no, lane, id, dest, attempts, claims FROM outbox_parked p"
        f" WHERE state IN ('RETRY', 'SCHEDULED') AND due_at <= {NOW}{_FREE}"
        " ORDER BY state, due_at, partition_no, id LIMIT ?",
        (limit,),
    )
    if due:
        connection.exec_driver_sql(
            "INSERT OR IGNORE INTO outbox_ready (partition_no, id, dest, lane, attempts, claims)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [(p, number, dest, lane, attempts, claims) for p, lane, number, dest, attempts, claims in due],
        )
        connection.exec_driver_sql(
            "DELETE FROM outbox_parked WHERE partition_no = ? AND lane = ? AND id = ? AND dest = ?",
            [row[:4] for row in due],
        )
    return len(due)
