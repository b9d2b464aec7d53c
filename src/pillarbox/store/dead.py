"""Finding dead letters: by event id, by type and destination, page by page in the order of their row ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from ..event.destination import Destination
from .schema import outbox_event, outbox_parked, outbox_replay

PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead letters: all, or those of one event type, one destination, with a text in their error."""

    event_type: str | None = None
    destination: str | None = None
    error: str | None = None


class DeadRow(NamedTuple):
    """A dead work row with what is needed of its event; the event's columns are None when it is missing."""

    partition_no: int
    lane: int
    id: int
    dest: int
    attempts: int
    error: str
    error_at: datetime
    replays: int
    event_id: str | None
    event_type: str | None
    destination: str | None
    routing_key: str | None
    more_destinations: str | None
    state: str

    @property
    def goes_to(self) -> Destination:
        """Where this delivery was to go."""
        if self.dest == 0:
            return Destination(self.destination or "", self.routing_key)
        try:
            name, routing_key = json.loads(self.more_destinations or "[]")[self.dest - 1]
        except (ValueError, IndexError, TypeError):
            return Destination("")
        return Destination(name, routing_key)


def dead_rows(
    connection: Connection, which: DeadFilter | Sequence[str], *, after: int = 0, with_orphans: bool = False
) -> Iterator[DeadRow]:
    """Dead work rows, by event ids or filter, behind the event with row id ``after``; read in pages, without locks."""
    if isinstance(which, DeadFilter):
        yield from _filtered(connection, which, after, with_orphans)
        return
    for start in range(0, len(which), PAGE):
        yield from _named(connection, which[start : start + PAGE], and_(_DEAD, outbox_parked.c.id > after))


def ended_rows(connection: Connection, event_id: str) -> list[DeadRow]:
    """What of one event is dead or buried."""
    return _named(connection, [event_id], outbox_parked.c.state.in_(("DEAD", "BURIED")))


def _named(connection: Connection, event_ids: Sequence[str], wanted: ColumnElement[bool]) -> list[DeadRow]:
    numbers = connection.scalars(select(outbox_event.c.id).where(outbox_event.c.event_id.in_(event_ids))).all()
    found = _SELECT.where(wanted, outbox_parked.c.id.in_(sorted(numbers)))
    return [DeadRow._make(row) for row in connection.execute(found.order_by(outbox_parked.c.id, outbox_parked.c.dest))]


_replays = (
    select(func.count())
    .where(outbox_replay.c.id == outbox_parked.c.id, outbox_replay.c.dest == outbox_parked.c.dest)
    .scalar_subquery()
)
_SELECT = select(
    outbox_parked.c.partition_no,
    outbox_parked.c.lane,
    outbox_parked.c.id,
    outbox_parked.c.dest,
    outbox_parked.c.attempts,
    outbox_parked.c.error,
    outbox_parked.c.error_at,
    _replays,
    outbox_event.c.event_id,
    outbox_event.c.event_type,
    outbox_event.c.destination,
    outbox_event.c.routing_key,
    outbox_event.c.more_destinations,
    outbox_parked.c.state,
).select_from(outbox_parked.outerjoin(outbox_event, outbox_event.c.id == outbox_parked.c.id))
_DEAD = outbox_parked.c.state == "DEAD"


def _filtered(connection: Connection, which: DeadFilter, after: int, with_orphans: bool) -> Iterator[DeadRow]:
    wanted: list[ColumnElement[bool]] = [] if with_orphans else [outbox_event.c.event_id.is_not(None)]
    if which.event_type is not None:
        wanted.append(outbox_event.c.event_type == which.event_type)
    if which.destination is not None:
        wanted.append(_may_go_to(which.destination))
    if which.error is not None:
        wanted.append(outbox_parked.c.error.contains(which.error, autoescape=True))
    number, dest = after, 2**15 - 1
    while True:
        # The index (state, id) in order, from where the last page ended.
        behind = or_(outbox_parked.c.id > number, and_(outbox_parked.c.id == number, outbox_parked.c.dest > dest))
        page = connection.execute(
            _SELECT.where(_DEAD, outbox_parked.c.id >= number, behind, *wanted)
            .order_by(outbox_parked.c.id, outbox_parked.c.dest)
            .limit(PAGE)
        )
        rows = [DeadRow._make(row) for row in page]
        yield from (row for row in rows if which.destination in (None, row.goes_to.name))
        if len(rows) < PAGE:
            return
        number, dest = rows[-1].id, rows[-1].dest


def _may_go_to(name: str) -> ColumnElement[bool]:
    # Further destinations stand in a JSON text: the text narrows the search, goes_to decides.
    within = outbox_event.c.more_destinations.contains(json.dumps(name, ensure_ascii=False), autoescape=True)
    return or_(
        and_(outbox_parked.c.dest == 0, outbox_event.c.destination == name), and_(outbox_parked.c.dest > 0, within)
    )
