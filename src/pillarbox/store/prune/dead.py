"""Which dead and buried events may go. Only on request, only whole events, and never one that others wait behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection

from ...ports import EVERY_LANE
from ..raw import fetch, in_parts
from .bounds import Bounds
from .events import Event, events
from .lookups import LookUp, alone
from .words import IDS_PER_STATEMENT, Words
from .work import ENDED, UNFINISHED, quoted, with_work

_KEYS_PER_STATEMENT: Final = 250
_KEY: Final = "partition_no, lane, id, dest"
_BY_KEY: Final = LookUp(_KEY, "outbox_parked", ("partition_no", "lane", "id", "dest"))
_HEADS: Final = LookUp("head_id", "outbox_lane", ("partition_no", "lane"))


class ParkedKey(NamedTuple):
    """Primary key of a parked row."""

    partition_no: int
    lane: int
    id: int
    dest: int


class Ended(NamedTuple):
    """Events that may go, the parked rows that go with them, and the number of receipts of each to remove."""

    events: list[Event]
    parked: list[ParkedKey]
    receipts: dict[int, int]


def ended_after(
    connection: Connection, words: Words, state: str, after: int, bounds: Bounds, limit: int
) -> list[tuple[int, bool]]:
    """Ids of the next ``limit`` parked rows in ``state``, and whether each ended long ago: the index (state, id)."""
    index = " FORCE INDEX (outbox_parked_state)" if words.by_key else ""
    rows = fetch(
        connection,
        f"SELECT id, CASE WHEN error_at <= '{bounds.dead_until}' THEN 1 ELSE 0 END FROM outbox_parked{index}"
        f" WHERE state = '{state}' AND id > {after:d} ORDER BY id LIMIT {limit:d}",
    )
    return [(number, bool(old)) for number, old in rows]


def removable_ended(connection: Connection, words: Words, ids: Sequence[int], bounds: Bounds, *, lock: bool) -> Ended:
    """Of these ids, the events whose deliveries all ended: by a receipt, or dead or buried, each old enough.

    The head of a hold stays, whatever its age: the events behind it wait for a decision (replay, skip or bury).
    Locks, with ``lock``, the parked rows and then the events.
    """
    parked = _parked(connection, words, [number for number in ids if number < bounds.highest], bounds)
    if lock:
        parked = _locked(connection, words, parked)
    numbers = sorted(parked)
    found = {one.id: one for one in events(connection, words, numbers, lock=lock)}
    busy = with_work(connection, words, numbers, bounds.partitions, UNFINISHED) | _heads(connection, words, parked)
    receipts = _old_receipts(connection, words, numbers, bounds)
    going = [
        number
        for number in numbers
        if number not in busy
        and number in found
        and {key.dest for key in parked[number]} | receipts[number] == set(range(found[number].destinations))
    ]
    return Ended(
        [found[number] for number in going],
        sorted(key for number in going for key in parked[number]),
        {number: max(receipts[number]) + 1 for number in going if receipts[number]},
    )


def remove_parked(connection: Connection, words: Words, keys: Sequence[ParkedKey]) -> int:
    """Delete these parked rows."""
    return sum(
        connection.exec_driver_sql(_BY_KEY.delete(words, part)).rowcount for part in in_parts(keys, _KEYS_PER_STATEMENT)
    )


def _parked(connection: Connection, words: Words, ids: Sequence[int], bounds: Bounds) -> dict[int, set[ParkedKey]]:
    """The parked rows of those ids of which no parked row is too young."""
    old = f"CASE WHEN error_at <= '{bounds.dead_until}' THEN 1 ELSE 0 END"
    by_id = LookUp(f"{_KEY}, {old}", "outbox_parked", ("id",), "outbox_parked_state")
    found: dict[int, set[ParkedKey]] = defaultdict(set)
    young: set[int] = set()
    for part in in_parts(sorted(set(ids)), IDS_PER_STATEMENT):
        for state in ENDED:
            for *key, is_old in fetch(connection, by_id.sql(words, alone(part), also=f"state = '{state}'")):
                row = ParkedKey(*key)
                found[row.id].add(row)
                if not is_old:
                    young.add(row.id)
    return {number: rows for number, rows in found.items() if number not in young}


def _locked(connection: Connection, words: Words, parked: dict[int, set[ParkedKey]]) -> dict[int, set[ParkedKey]]:
    """Those ids of which every row could be locked and is still dead or buried."""
    still = f"state IN ({quoted(ENDED)})"
    got: dict[int, set[ParkedKey]] = defaultdict(set)
    for part in in_parts(sorted(key for rows in parked.values() for key in rows), _KEYS_PER_STATEMENT):
        for row in fetch(connection, _BY_KEY.sql(words, part, also=still, lock=True)):
            got[row[2]].add(ParkedKey(*row))
    return {number: rows for number, rows in got.items() if rows == parked[number]}


def _heads(connection: Connection, words: Words, parked: dict[int, set[ParkedKey]]) -> set[int]:
    """Ids that are the head of a hold, on their key or on their whole destination."""
    keys = [key for rows in parked.values() for key in rows]
    places = sorted({(key.partition_no, lane) for key in keys for lane in (key.lane, EVERY_LANE)})
    found: set[int] = set()
    for part in in_parts(places, _KEYS_PER_STATEMENT):
        found.update(row[0] for row in fetch(connection, _HEADS.sql(words, part)))
    return found


def _old_receipts(connection: Connection, words: Words, ids: Sequence[int], bounds: Bounds) -> dict[int, set[int]]:
    """The destinations of each id that have a receipt which is old enough."""
    found: dict[int, set[int]] = defaultdict(set)
    for part in in_parts(ids, IDS_PER_STATEMENT):
        for number, dest in fetch(
            connection,
            f"SELECT id, dest FROM outbox_receipt{words.by_key}"
            f" WHERE {words.among(part)} AND sent_at <= '{bounds.sent_until}'",
        ):
            found[number].add(dest)
    return found
