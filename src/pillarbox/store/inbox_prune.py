"""Taking old marks out of the inbox, by whole primary keys, along the primary key.

``applied_at`` has no index: it would cost every mark, and a run that removes once a day can walk. With time-ordered
event ids (Pillarbox's own) the old marks of a consumer are beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from . import dbtime
from .write import styled

MAX_BATCH: Final = 1_000
"""Marks of one statement."""


class Marks(NamedTuple):
    """A stretch of one consumer's marks: the old ones, and the last id of the stretch (None: it was the end)."""

    old: list[str]
    last: str | None


def next_consumer(connection: Connection, after: str) -> str | None:
    """The first consumer behind this one in the order of the key; None at the end."""
    sql = text("SELECT MIN(consumer) FROM inbox_event WHERE consumer > :after")
    found: str | None = connection.execute(sql, {"after": after}).scalar()
    return found


def marks_after(connection: Connection, consumer: str, after: str, limit: int, keep: float) -> Marks:
    """The next ``limit`` marks behind the event id ``after``; old are those applied more than ``keep`` seconds ago."""
    is_old = f"applied_at < {dbtime.after(connection, f'{-keep:.3f}')}"
    sql = text(
        f"SELECT event_id, CASE WHEN {is_old} THEN 1 ELSE 0 END FROM inbox_event"
        " WHERE consumer = :consumer AND event_id > :after ORDER BY event_id LIMIT :limit"
    )
    rows = connection.execute(sql, {"consumer": consumer, "after": after, "limit": limit}).all()
    return Marks([row[0] for row in rows if row[1]], rows[-1][0] if len(rows) == limit else None)


def remove(connection: Connection, consumer: str, event_ids: Sequence[str], keep: float) -> int:
    """Delete these marks, if they are still older than ``keep`` seconds; returns how many there were."""
    if not event_ids:
        return 0
    name, style = connection.dialect.name, connection.dialect.paramstyle
    is_old = f"applied_at < {dbtime.after(connection, f'{-keep:.3f}')}".replace("\\:", ":")
    if name == "postgresql":
        sql = f"DELETE FROM inbox_event WHERE consumer = ? AND event_id = ANY(CAST(? AS varchar[])) AND {is_old}"
        return connection.exec_driver_sql(styled(sql, style), (consumer, list(event_ids))).rowcount
    if name == "sqlite":
        sql = f"DELETE FROM inbox_event WHERE consumer = ? AND event_id IN ({_marks(event_ids)}) AND {is_old}"
        return connection.exec_driver_sql(styled(sql, style), (consumer, *event_ids)).rowcount
    # Looked up key by key: a range would wait for, or lock, the marks that consumers are making in between.
    listed = " UNION ALL ".join(["SELECT ? AS event_id", *["SELECT ?"] * (len(event_ids) - 1)])
    sql = (
        f"DELETE e FROM ({listed}) AS k STRAIGHT_JOIN inbox_event AS e FORCE INDEX (PRIMARY)"
        f" ON e.consumer = ? AND e.event_id = k.event_id WHERE e.{is_old}"
    )
    return connection.exec_driver_sql(styled(sql, style), (*event_ids, consumer)).rowcount


def _marks(items: Sequence[str]) -> str:
    return ", ".join("?" * len(items))
