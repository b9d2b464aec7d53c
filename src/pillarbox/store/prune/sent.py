"""Which sent events may go. SENT is what receipts say: one for each destination, each old enough, and no work left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from ..raw import fetch
from .bounds import Bounds
from .events import Event, events, existing
from .words import Words
from .work import with_work


class Receipts(NamedTuple):
    """What receipts say about one event: how many, for destinations without a gap or not, all old enough or not."""

    id: int
    receipts: int
    gapless: bool
    old: bool


class Removable(NamedTuple):
    """Events that may go with their receipts, and numbers of receipts by id whose event is gone already."""

    events: list[Event]
    leftovers: dict[int, int]


def receipts_after(connection: Connection, words: Words, after: int, bounds: Bounds, limit: int) -> list[Receipts]:
    """The receipts of the next ``limit`` events that have any, in order: one range of the primary key (id, dest)."""
    rows = fetch(
        connection,
        "SELECT id, COUNT(*), CASE WHEN MIN(dest) = 0 AND MAX(dest) = COUNT(*) - 1 THEN 1 ELSE 0 END,"
        f" CASE WHEN MAX(sent_at) <= '{bounds.sent_until}' THEN 1 ELSE 0 END FROM outbox_receipt{words.by_key}"
        f" WHERE id > {after:d} AND id < {bounds.end:d} GROUP BY id ORDER BY id LIMIT {limit:d}",
    )
    return [Receipts(number, count, bool(gapless), bool(old)) for number, count, gapless, old in rows]


def removable(
    connection: Connection, words: Words, candidates: Sequence[Receipts], bounds: Bounds, *, lock: bool
) -> Removable:
    """Of ``candidates``, those that may go now; with ``lock`` their events stay locked until the transaction ends.

    Events that somebody else holds are left for another time.
    """
    wanted = {one.id: one.receipts for one in candidates if one.old and one.gapless and one.id < bounds.highest}
    found = events(connection, words, sorted(wanted), lock=lock)
    busy = with_work(connection, words, sorted(wanted), bounds.partitions)
    missing = sorted(wanted.keys() - {one.id for one in found})
    gone = set(missing) - existing(connection, words, missing) - busy if missing else set()
    going = [one for one in found if one.destinations == wanted[one.id] and one.id not in busy]
    return Removable(going, {number: wanted[number] for number in sorted(gone)})
