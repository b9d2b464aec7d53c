"""Events that are to go: locked, and counted in deliveries and bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from ..raw import fetch, in_parts
from .lookups import LookUp, alone
from .words import IDS_PER_STATEMENT, Words


class Event(NamedTuple):
    """An event's row id, how many destinations it has (0: its list cannot be read), and the size of its payload."""

    id: int
    destinations: int
    size: int


def events(connection: Connection, words: Words, ids: Sequence[int], *, lock: bool) -> list[Event]:
    """The events with these ids that are there, in order.

    ``lock``: for update, by primary key and ascending, as everybody does who locks several.
    """
    found: list[Event] = []
    for part in in_parts(ids, IDS_PER_STATEMENT):
        sql = LookUp(f"id, more_destinations, {words.size}", "outbox_event", ("id",)).sql(words, alone(part), lock=lock)
        found += [Event(number, destinations(more), size) for number, more, size in fetch(connection, sql)]
    return sorted(found)


def existing(connection: Connection, words: Words, ids: Sequence[int]) -> set[int]:
    """Which of these events are there at all, locked by somebody or not."""
    found: set[int] = set()
    for part in in_parts(ids, IDS_PER_STATEMENT):
        rows = fetch(connection, f"SELECT id FROM outbox_event{words.by_key} WHERE {words.among(part)}")
        found.update(row[0] for row in rows)
    return found


def destinations(more: str | None) -> int:
    """How many deliveries an event has by its column ``more_destinations``; 0 when nobody can tell.

    >>> destinations(None), destinations('[["audit", null]]'), destinations("{")
    (1, 2, 0)
    """
    if more is None:
        return 1
    try:
        listed = json.loads(more)
    except ValueError:
        return 0
    return 1 + len(listed) if isinstance(listed, list) else 0
