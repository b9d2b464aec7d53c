"""How far a run may go: a moment by the database's clock, and an id."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection

from ...policy.retention import Keep
from ..raw import fetch
from .words import Words


class Bounds(NamedTuple):
    """Receipts up to ``sent_until`` are old enough, dead ends up to ``dead_until`` (None: none are).

    Only ids below ``highest`` may go: after a restart MySQL 5.7 and old MariaDB hand out the id after the highest one
    in the table, and an id must not come twice. Ids from ``end`` on are too young to have an old receipt.
    """

    sent_until: str
    dead_until: str | None
    highest: int
    end: int
    partitions: int


def bounds(connection: Connection, words: Words, keep: Keep) -> Bounds:
    """The bounds of a run that begins now."""
    sent_until = _text(connection, words.moment(keep.sent))
    dead_until = None if keep.dead is None else _text(connection, words.moment(keep.dead))
    highest = fetch(connection, "SELECT MAX(id) FROM outbox_event")[0][0] or 0
    partitions = fetch(connection, "SELECT partitions FROM outbox_meta WHERE one = 1")[0][0]
    young = f"recorded_at > '{sent_until}' AND recorded_at <= '{_text(connection, words.moment(0.0))}'"
    return Bounds(sent_until, dead_until, highest, _first(connection, young, highest), partitions)


def _first(connection: Connection, young: str, highest: int) -> int:
    """The first id recorded after the moment, by bisection: there is no index on the time, and about 25 look-ups do.

    Nothing recorded later can have been sent earlier. Ids and times go up together only nearly (slow transactions), and
    what that leaves out is a matter of some seconds. Times in the future, of a clock that was wrong, are passed over.
    """
    low, high = 0, highest
    while low < high:
        middle = (low + high) // 2
        found = fetch(
            connection,
            f"SELECT id, CASE WHEN {young} THEN 1 ELSE 0 END FROM outbox_event"
            f" WHERE id > {middle:d} ORDER BY id LIMIT 1",
        )
        if found and not found[0][1]:
            low = max(middle + 1, min(found[0][0], high))
        else:
            high = middle
    return min(highest, low + 1)


def _text(connection: Connection, sql: str) -> str:
    found = fetch(connection, sql)[0][0]
    return found.decode("ascii") if isinstance(found, bytes) else str(found)
