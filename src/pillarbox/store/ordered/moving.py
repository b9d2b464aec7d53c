"""Rows that change their place or their count outside a settlement, each in a transaction fenced by the tenure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, text

from ...ports import Tenure, WorkKey
from ..settle import MAX_ATTEMPTS
from .signs import due_rows
from .statements import PARKED, Statements

_DUE_STATES: Final = ("RETRY", "SCHEDULED")
_LOCK: Final = {"postgresql": " FOR UPDATE", "sqlite": ""}
_LOCK_PARKED: Final = {"postgresql": " FOR UPDATE OF p", "sqlite": ""}
_ANYWAY: Final = {"postgresql": " ON CONFLICT DO NOTHING", "sqlite": " ON CONFLICT DO NOTHING"}
_MYSQL_ANYWAY: Final = " ON DUPLICATE KEY UPDATE lane = VALUES(lane)"


def any_due(connection: Connection, partition_nos: Sequence[int]) -> bool:
    """Whether a move would move something; locks nothing."""
    found = " OR ".join(f"EXISTS (SELECT 1 FROM {due_rows(connection, one, partition_nos)})" for one in _DUE_STATES)
    return bool(connection.execute(text(f"SELECT CASE WHEN {found} THEN 1 ELSE 0 END")).scalar())


def move_due(
    connection: Connection, statements: Statements, owner: str, tenures: Sequence[Tenure], limit: int
) -> dict[int, int]:
    """Move up to ``limit`` due rows to ready in the open transaction; the lowest id moved, by partition."""
    mine = [one.partition_no for one in sorted(tenures) if is_ours(connection, owner, one)]
    if not mine:
        return {}
    rows = _due(connection, mine, limit)
    lowest: dict[int, int] = {}
    for number, _, event, *_ in rows:
        lowest[number] = min(event, lowest.get(number, event))
    _make_ready(connection, rows)
    statements.delete(connection, PARKED, sorted((n, lane, event, dest) for n, lane, event, dest, *_ in rows))
    sql = text("UPDATE outbox_partition SET low_id = :low WHERE partition_no = :number AND low_id > :low")
    for number, event in sorted(lowest.items()):
        connection.execute(sql, {"low": event - 1, "number": number})
    return lowest


def low_ids(connection: Connection, partition_nos: Sequence[int]) -> dict[int, int]:
    """Where the partitions are to be read from, as stored."""
    numbers = ", ".join(str(int(number)) for number in partition_nos) or "-1"
    sql = f"SELECT partition_no, low_id FROM outbox_partition WHERE partition_no IN ({numbers})"
    return {row[0]: row[1] for row in connection.execute(text(sql))}


def charge(connection: Connection, owner: str, tenure: Tenure, key: WorkKey, *, parked: bool) -> int:
    """Add one to ``claims``; 0 when the partition is lost or the row is gone."""
    if not is_ours(connection, owner, tenure):
        return 0
    table, row = "outbox_ready", "partition_no = :n AND id = :i AND dest = :d"
    parameters: dict[str, Any] = {"n": key.partition_no, "i": key.id, "d": key.dest}
    if parked:
        table, row = "outbox_parked", f"{row} AND lane = :lane"
        parameters["lane"] = _lane_of_parked(connection, key)
    more = f"UPDATE {table} SET claims = claims + 1 WHERE {row} AND claims < {MAX_ATTEMPTS}"
    connection.execute(text(more), parameters)
    return connection.execute(text(f"SELECT claims FROM {table} WHERE {row}"), parameters).scalar() or 0


def is_ours(connection: Connection, owner: str, tenure: Tenure) -> bool:
    """Whether the tenure holds; it does until the transaction ends."""
    lock = _LOCK.get(connection.dialect.name, " FOR UPDATE")
    sql = (
        "SELECT 1 FROM outbox_partition WHERE partition_no = :number AND owner = :owner AND token = :token"
        f" AND nonce = :nonce{lock}"
    )
    fence = {"number": tenure.partition_no, "owner": owner, "token": tenure.token, "nonce": tenure.nonce}
    return connection.execute(text(sql), fence).first() is not None


def _due(connection: Connection, partition_nos: Sequence[int], limit: int) -> list[tuple[int, ...]]:
    lock = _LOCK_PARKED.get(connection.dialect.name, " FOR UPDATE")
    straight = " STRAIGHT_JOIN" if connection.dialect.name in {"mysql", "mariadb"} else ""
    rows: list[tuple[int, ...]] = []
    for state in _DUE_STATES:
        if len(rows) < limit:
            found = connection.execute(
                text(
                    f"SELECT{straight} p.partition_no, p.lane, p.id, p.dest, p.attempts, p.claims"
                    f" FROM {due_rows(connection, state, partition_nos)}"
                    f" ORDER BY p.state, p.due_at, p.partition_no, p.id LIMIT {limit - len(rows):d}{lock}"
                )
            )
            rows += [tuple(row) for row in found]
    return rows


def _make_ready(connection: Connection, rows: Sequence[tuple[int, ...]]) -> None:
    names = ("n", "l", "i", "d", "a", "c")
    anyway = _ANYWAY.get(connection.dialect.name, _MYSQL_ANYWAY)
    sql = (
        "INSERT INTO outbox_ready (partition_no, lane, id, dest, attempts, claims) VALUES (:n, :l, :i, :d, :a, :c)"
        f"{anyway}"
    )
    if rows:
        connection.execute(text(sql), [dict(zip(names, row, strict=True)) for row in sorted(rows)])


def _lane_of_parked(connection: Connection, key: WorkKey) -> int:
    """By the index (state, id): a key does not tell the lane, which is part of the primary key."""
    hint = " FORCE INDEX (outbox_parked_state)" if connection.dialect.name in {"mysql", "mariadb"} else ""
    sql = (
        f"SELECT lane FROM outbox_parked{hint} WHERE state IN ('HELD', 'RETRY') AND id = :i AND dest = :d"
        " AND partition_no = :n"
    )
    found = connection.execute(text(sql), {"n": key.partition_no, "i": key.id, "d": key.dest}).scalar()
    return -1 if found is None else int(found)
