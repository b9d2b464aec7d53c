"""Cheap looks: is there anything to do, and is there anything where nothing should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, text

from ...ports import Signs, Span
from ..dbtime import now
from ..raw import fetch

_DUE_STATES: Final = ("RETRY", "SCHEDULED")


def look(connection: Connection, spans: Sequence[Span]) -> Signs:
    """One statement: each part stops at the first row it finds."""
    ready = " OR ".join(f"EXISTS ({_ready(connection, n, f'> {after:d}')})" for n, after in spans) or "1 = 0"
    numbers = [n for n, _ in spans]
    due = " OR ".join(f"EXISTS (SELECT 1 FROM {due_rows(connection, state, numbers)})" for state in _DUE_STATES)
    row = connection.execute(
        text(
            f"SELECT CASE WHEN {ready} THEN 1 ELSE 0 END, CASE WHEN {due} THEN 1 ELSE 0 END,"
            f" CASE WHEN EXISTS ({_draining(connection, numbers)}) THEN 1 ELSE 0 END,"
            f" (SELECT COUNT(*) FROM outbox_relay WHERE lease = 'partition' AND seen_until > {now(connection)})"
        )
    ).one()
    return Signs(bool(row[0]), bool(row[1]), bool(row[2]), row[3])


def stragglers(connection: Connection, spans: Sequence[Span]) -> list[int]:
    """One statement; a range of the primary key for each span, up to its first row."""
    if not spans:
        return []
    # Each in a derived table: SQLite takes no LIMIT inside a compound SELECT otherwise.
    looks = [
        f"SELECT partition_no FROM ({_ready(connection, n, f'<= {low:d}', 'partition_no')} LIMIT 1) s{n}"
        for n, low in spans
    ]
    return sorted(row[0] for row in fetch(connection, " UNION ALL ".join(looks)))


def due_rows(connection: Connection, state: str, partition_nos: Sequence[int]) -> str:
    """What stands behind FROM for parked rows ``p`` of a state whose time has come and that nothing holds.

    The index (state, due_at, partition_no, id) in order from its start up to now, and not beyond.
    """
    mysql = connection.dialect.name in {"mysql", "mariadb"}
    index, primary = (" FORCE INDEX (outbox_parked_due)", " FORCE INDEX (PRIMARY)") if mysql else ("", "")
    numbers = ", ".join(str(int(number)) for number in partition_nos) or "-1"
    # clock_timestamp() itself is volatile and cannot bound an index scan; the sub-select makes a constant of it.
    moment = "(SELECT clock_timestamp())" if connection.dialect.name == "postgresql" else now(connection)
    return (
        f"outbox_parked p{index}"
        f" LEFT JOIN outbox_lane h{primary} ON h.partition_no = p.partition_no AND h.lane = p.lane"
        " AND h.target = p.target"
        f" LEFT JOIN outbox_lane d{primary} ON d.partition_no = p.partition_no AND d.lane = -1 AND d.target = p.target"
        f" WHERE p.state = '{state}' AND p.due_at <= {moment} AND p.partition_no IN ({numbers})"
        " AND h.lane IS NULL AND d.lane IS NULL"
    )


def _ready(connection: Connection, number: int, where: str, column: str = "1") -> str:
    hint = " FORCE INDEX (PRIMARY)" if connection.dialect.name in {"mysql", "mariadb"} else ""
    return f"SELECT {column} FROM outbox_ready{hint} WHERE partition_no = {number:d} AND id {where}"


def _draining(connection: Connection, partition_nos: Sequence[int]) -> str:
    hint = " FORCE INDEX (outbox_lane_mode)" if connection.dialect.name in {"mysql", "mariadb"} else ""
    numbers = ", ".join(str(int(number)) for number in partition_nos) or "-1"
    return f"SELECT 1 FROM outbox_lane{hint} WHERE mode = 'drain' AND partition_no IN ({numbers})"
