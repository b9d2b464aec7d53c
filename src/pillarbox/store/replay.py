"""What becomes of dead letters by a person's word: sent again under the same id, or buried for good; on the record.

Where relays keep order, a dead letter that goes again stays among the parked rows and its key's hold, if it is the head
of one, is told to go on: the relay that owns the partition sends it first and what waited behind it afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, delete, insert, select, text, update

from ..errors import ConfigError
from ..policy.lanes import lane_of
from ..ports import Stream
from . import dbtime, holds
from .dead import PAGE, DeadFilter, DeadRow, dead_rows
from .schema import outbox_parked, outbox_ready, outbox_replay
from .settle import storable

DEFAULT_LIMIT: Final = 1_000
BURIED: Final = "buried: "
"""What the record's reason begins with when an event was buried instead of sent again."""

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
    check_name(by)
    rows = dead_rows(connection, which, after=after)
    found = list(islice(rows, limit) if isinstance(which, DeadFilter) else rows)
    in_order, moved = holds.keeps_order(connection), 0
    for start in range(0, len(found), PAGE):
        page = found[start : start + PAGE]
        heads = holds.lock(connection, map(stream_of, page)) if in_order else {}
        still_dead = _lock(connection, page)
        record(connection, still_dead, by, reason)
        if in_order:
            _try_again(connection, still_dead)
            holds.drain_behind(connection, heads, [(stream_of(row), row.id) for row in still_dead])
        else:
            _make_ready(connection, still_dead)
        moved += len(still_dead)
    return moved


def bury(connection: Connection, event_ids: Sequence[str], *, by: str, reason: str) -> int:
    """Give dead letters up for good, in the connection's transaction; returns how many deliveries.

    They stay in the table for the record, and no replay takes them again; what waited behind them goes on. ConfigError
    (PB-001) when ``by`` is empty or too long.
    """
    check_name(by)
    found, buried = list(dead_rows(connection, event_ids)), 0
    for start in range(0, len(found), PAGE):
        page = found[start : start + PAGE]
        heads = holds.lock(connection, map(stream_of, page))
        still_dead = _lock(connection, page)
        record(connection, still_dead, by, BURIED + reason)
        _change(connection, still_dead, state="BURIED", due_at=None)
        holds.drain_behind(connection, heads, [(stream_of(row), row.id) for row in still_dead])
        buried += len(still_dead)
    return buried


def stream_of(row: DeadRow) -> Stream:
    """Whose order a dead letter is part of."""
    return Stream(row.partition_no, row.lane, lane_of(row.goes_to.name))


def check_name(by: str) -> None:
    """ConfigError (PB-001) unless the record can say who."""
    if not by.strip() or len(by) > 255:
        raise ConfigError("The record says who asked for it: `by` takes 1 to 255 characters.", fix="Pass by='name'.")


def record(connection: Connection, rows: Sequence[DeadRow], by: str, reason: str) -> None:
    """One row for each delivery in ``outbox_replay``."""
    if rows:
        who = {"replayed_by": storable(by), "reason": storable(reason)}
        connection.execute(
            insert(outbox_replay).values(replayed_at=text(dbtime.now(connection)), **who),
            [{"id": row.id, "dest": row.dest, "attempts": row.attempts, "error": row.error} for row in rows],
        )


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


def _make_ready(connection: Connection, rows: Sequence[DeadRow]) -> None:
    if not rows:
        return
    connection.execute(
        insert(outbox_ready),
        [{"partition_no": row.partition_no, "id": row.id, "dest": row.dest, "lane": row.lane} for row in rows],
    )
    connection.execute(delete(outbox_parked).where(_THIS), _keys(rows))


def _try_again(connection: Connection, rows: Sequence[DeadRow]) -> None:
    """Due now. The due mover takes it when nothing is held; behind a hold it keeps its place by its id."""
    _change(connection, rows, state="RETRY", due_at=text(dbtime.now(connection)), attempts=0, claims=0)


def _change(connection: Connection, rows: Sequence[DeadRow], **values: Any) -> None:
    if rows:
        change = update(outbox_parked).where(_THIS).values(target=bindparam("its_target"), **values)
        each = zip(_keys(rows), rows, strict=True)
        connection.execute(change, [{**key, "its_target": stream_of(row).target} for key, row in each])


_THIS: Final = and_(*(outbox_parked.c[name] == bindparam(f"key_{name}") for name in _KEY))


def _keys(rows: Sequence[DeadRow]) -> list[dict[str, Any]]:
    return [{f"key_{name}": getattr(row, name) for name in _KEY} for row in rows]
