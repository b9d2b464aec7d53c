"""Holds as an operator changes them: look, lock, and tell the owner of the partition to go on.

Nothing is rewritten per event that waits: the hold's mode becomes ``drain`` and is due now, and the relay that owns the
partition does the rest. Lock order: holds by primary key, and only then parked rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, func, select, text, update

from ..policy.lanes import lane_of, partition_of
from ..ports import EVERY_LANE, Stream
from . import dbtime
from .schema import outbox_event, outbox_lane, outbox_meta, outbox_parked

Heads = Mapping[Stream, int]
"""Holds, and the row id of the event at the head of each."""

_KEY: Final = (outbox_lane.c.partition_no, outbox_lane.c.lane, outbox_lane.c.target)
_PAGE: Final = 500


class HeldStream(NamedTuple):
    """A hold as a person sees it. ``key`` is None for a whole destination; ``waiting`` counts the events behind it."""

    partition_no: int
    key: str | None
    destination: str
    mode: str
    head_event_id: str | None
    waiting: int
    since: datetime
    due_at: datetime | None
    reason: str


def keeps_order(connection: Connection) -> bool:
    """Whether relays own partitions, so that events of a key wait for each other. It stays so in this transaction.

    Locked before anything else, as by a relay that switches the tables over.
    """
    lease = select(outbox_meta.c.lease).where(outbox_meta.c.one == 1).with_for_update(read=True)
    return bool(connection.execute(lease).scalar_one() == "partition")


def held_streams(connection: Connection, destination: str | None, limit: int) -> list[HeldStream]:
    """The holds, the oldest first, perhaps of one destination only."""
    event = outbox_event.c
    found = (
        select(*outbox_lane.c, event.event_id, event.event_key)
        .select_from(outbox_lane.outerjoin(outbox_event, event.id == outbox_lane.c.head_id))
        .order_by(outbox_lane.c.since, *_KEY)
        .limit(limit)
    )
    if destination is not None:
        found = found.where(outbox_lane.c.destination == destination)
    return [_shown(row, _waiting(connection, row)) for row in connection.execute(found).all()]


def _waiting(connection: Connection, row: Any) -> int:
    """One range of the parked rows' primary key: of the key, or of the partition for a whole destination."""
    parked = outbox_parked.c
    behind = select(func.count()).where(
        parked.partition_no == row.partition_no,
        parked.target == row.target,
        parked.state.in_(("HELD", "RETRY")),
        parked.id != row.head_id,
    )
    if row.lane != EVERY_LANE:
        behind = behind.where(parked.lane == row.lane)
    return int(connection.execute(behind).scalar_one())


def _shown(row: Any, waiting: int) -> HeldStream:
    key = row.event_id if row.event_key is None else row.event_key
    return HeldStream(
        row.partition_no,
        None if row.lane == EVERY_LANE else key,
        row.destination,
        row.mode,
        row.event_id,
        waiting,
        dbtime.aware(row.since),
        None if row.due_at is None else dbtime.aware(row.due_at),
        row.reason,
    )


def count_held(connection: Connection, destination: str | None) -> int:
    """How many holds there are."""
    found = select(func.count()).select_from(outbox_lane)
    if destination is not None:
        found = found.where(outbox_lane.c.destination == destination)
    return int(connection.execute(found).scalar_one())


def streams_of_key(connection: Connection, key: str, destination: str | None) -> list[Stream]:
    """The held streams of a key (of an event without key, its id), perhaps for one destination only."""
    lane = lane_of(key)
    partitions = connection.execute(select(outbox_meta.c.partitions).where(outbox_meta.c.one == 1)).scalar_one()
    found = select(*_KEY).where(
        outbox_lane.c.partition_no == partition_of(lane, partitions), outbox_lane.c.lane == lane
    )
    if destination is not None:
        found = found.where(outbox_lane.c.target == lane_of(destination))
    return [Stream._make(row) for row in connection.execute(found.order_by(*_KEY))]


def streams_of_destination(connection: Connection, destination: str) -> list[Stream]:
    """The held streams of a destination, and the holds on all of it."""
    found = select(*_KEY).where(outbox_lane.c.target == lane_of(destination)).order_by(*_KEY)
    return [Stream._make(row) for row in connection.execute(found)]


def lock(connection: Connection, streams: Iterable[Stream]) -> Heads:
    """Lock what is held of these streams, or of their destinations as a whole."""
    heads: dict[Stream, int] = {}
    wanted = {one for stream in streams for one in (stream, stream._replace(lane=EVERY_LANE))}
    for partition_no, group in groupby(sorted(wanted), key=lambda stream: stream.partition_no):
        lanes = sorted({stream.lane for stream in group})
        for start in range(0, len(lanes), _PAGE):
            # A range of the primary key (partition_no, lane, target) for each lane.
            rows = connection.execute(
                select(*_KEY, outbox_lane.c.head_id)
                .where(outbox_lane.c.partition_no == partition_no, outbox_lane.c.lane.in_(lanes[start : start + _PAGE]))
                .order_by(*_KEY)
                .with_for_update()
            )
            heads |= {Stream(*row[:3]): row.head_id for row in rows}
    return {stream: head for stream, head in heads.items() if stream in wanted}


def drain(connection: Connection, streams: Iterable[Stream]) -> int:
    """Let what waits behind these holds go, now; returns how many holds there were. They must be locked."""
    wanted = sorted(set(streams), key=_place)
    for (partition_no, target), group in groupby(wanted, key=_place):
        lanes = [stream.lane for stream in group]
        for start in range(0, len(lanes), _PAGE):
            # Primary keys (partition_no, lane, target), one for each lane.
            connection.execute(
                update(outbox_lane)
                .where(outbox_lane.c.partition_no == partition_no, outbox_lane.c.target == target)
                .where(outbox_lane.c.lane.in_(lanes[start : start + _PAGE]))
                .values(mode="drain", due_at=text(dbtime.now(connection)))
            )
    return len(wanted)


def _place(stream: Stream) -> tuple[int, int]:
    return stream.partition_no, stream.target


def drain_behind(connection: Connection, heads: Heads, rows: Iterable[tuple[Stream, int]]) -> int:
    """Let those of the locked holds go on whose head is one of ``rows`` (stream and event row id)."""
    ours = [
        one for stream, number in rows for one in (stream, stream._replace(lane=EVERY_LANE)) if heads.get(one) == number
    ]
    return drain(connection, ours)
