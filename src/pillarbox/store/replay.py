"""Sending dead letters again: the same event under the same id, attempts from zero, and a record of who wanted it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from sqlalchemy import Connection, and_, bindparam, delete, insert, select, text

from ..errors import ConfigError
from . import dbtime
from .dead import PAGE, DeadFilter, DeadRow, dead_rows
from .schema import outbox_parked, outbox_ready, outbox_replay
from .settle import storable

DEFAULT_LIMIT: Final = 1_000

_KEY: Final = ("partition_no", "lane", "id", "dest")


def replay(
    connection: Connection,
    which: DeadFilter | Sequence[str],
    *,
    by: str,
    reason: str,
    limit: int = DEFAULT_LIMIT,
    after: int = 0,
) -> int:
    """Move dead letters back to the queue in the connection's transaction; returns how many deliveries.

    ``which`` is a list of event ids, or a :class:`.DeadFilter`, of which the oldest ``limit`` behind row ``after`` are
    taken: call it again, in a new transaction, until it returns 0. An event that is not dead, because somebody else
    replayed it or because it is in flight, is passed over. Each replay leaves a row in ``outbox_replay`` with ``by``,
    ``reason`` and what failed.
    Nothing happens before the caller commits. ConfigError (PB-001) when ``by`` is empty or too long.
    """
    if not by.strip() or len(by) > 255:
        raise ConfigError("A replay records who asked for it: `by` takes 1 to 255 characters.", fix="Pass by='name'.")
    rows = dead_rows(connection, which, after=after)
    found = list(islice(rows, limit) if isinstance(which, DeadFilter) else rows)
    moved = 0
    for start in range(0, len(found), PAGE):
        still_dead = _lock(connection, found[start : start + PAGE])
        _move(connection, still_dead, storable(by), storable(reason))
        moved += len(still_dead)
    return moved


def _lock(connection: Connection, rows: Sequence[DeadRow]) -> list[DeadRow]:
    """Lock what is still dead, in key order; two replays at once move each letter once."""
    columns = [outbox_parked.c[name] for name in _KEY]
    locked = connection.execute(
        select(*columns)
        .where(outbox_parked.c.state == "DEAD", outbox_parked.c.id.in_(sorted({row.id for row in rows})))
        .order_by(*columns)
        .with_for_update()
    )
    there = {tuple(one) for one in locked}
    return [row for row in rows if (row.partition_no, row.lane, row.id, row.dest) in there]


def _move(connection: Connection, rows: Sequence[DeadRow], by: str, reason: str) -> None:
    if not rows:
        return
    connection.execute(
        insert(outbox_replay).values(replayed_at=text(dbtime.now(connection)), replayed_by=by, reason=reason),
        [{"id": row.id, "dest": row.dest, "attempts": row.attempts, "error": row.error} for row in rows],
    )
    connection.execute(
        insert(outbox_ready),
        [{"partition_no": row.partition_no, "id": row.id, "dest": row.dest, "lane": row.lane} for row in rows],
    )
    this = and_(*(outbox_parked.c[name] == bindparam(f"key_{name}") for name in _KEY))
    keys = [{f"key_{name}": getattr(row, name) for name in _KEY} for row in rows]
    connection.execute(delete(outbox_parked).where(this), keys)
