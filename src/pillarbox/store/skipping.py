"""Skipping the event that holds up its key: it is buried, whatever its state, and what waited behind it goes on."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, or_, select, text, update

from ..ports import Stream
from . import dbtime, holds
from .replay import BURIED, check_name
from .schema import outbox_parked, outbox_replay
from .settle import storable


def skip(connection: Connection, streams: Sequence[Stream], *, by: str, reason: str) -> int:
    """Bury the heads of held streams in the connection's transaction; returns how many holds go on.

    A head that fails or is being sent at this moment is buried too, and stays so when it fails once more: when the
    broker confirms it all the same, its receipt says so. ConfigError (PB-001) when ``by`` is empty or too long.
    """
    check_name(by)
    heads = holds.lock(connection, streams)
    ours = {stream: head for stream, head in sorted(heads.items()) if stream in set(streams)}
    for stream, head in ours.items():
        _bury_head(connection, stream, head, by, BURIED + reason)
    return holds.drain(connection, ours)


def _bury_head(connection: Connection, stream: Stream, head: int, by: str, reason: str) -> None:
    parked = outbox_parked.c
    this = (
        parked.partition_no == stream.partition_no,
        parked.lane == stream.lane,
        parked.id == head,
        or_(parked.target == stream.target, parked.target == 0),  # 0: parked by a relay that did not need to know
        parked.state.in_(("DEAD", "RETRY", "HELD")),
    )
    found = connection.execute(
        select(parked.id, parked.dest, parked.attempts, parked.error).where(*this).with_for_update()
    ).all()
    if not found:
        return
    now = text(dbtime.now(connection))
    who = {"replayed_by": storable(by), "reason": storable(reason)}
    connection.execute(outbox_replay.insert().values(replayed_at=now, **who), [dict(row._mapping) for row in found])
    connection.execute(update(outbox_parked).where(*this).values(state="BURIED", due_at=None, target=stream.target))
