"""``keep = 0``: an event goes in the very transaction that settles its last delivery.

Two writes for each event instead of three now and two more later: its ready row, and the event itself. No receipt is
written for an event that goes at once; that it is gone says as much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import Connection

from ..raw import fetch
from .events import events
from .removal import remove_events, remove_receipts
from .words import Words
from .work import with_work


def remove_sent(connection: Connection, words: Words, sent: Iterable[tuple[int, int]], partitions: int) -> set[int]:
    """Remove the events of which these deliveries, (id, dest), were the last: returns their ids.

    To be called in the settlement's transaction, after the ready rows of ``sent`` were deleted under its fence and
    before receipts are written: those of the returned ids need none, all others do. What stays: the highest id (until a
    later one is settled with :mod:`.sent`), an event with another delivery open or parked, one of which another
    delivery is just being settled elsewhere. A pruner with ``keep = 0`` takes those later, by their receipts.

    Three statements, or six when events with several destinations are among them; all by primary key, in the order
    ready, event, receipt. ``words`` comes from :func:`.words_of`, ``partitions`` from outbox_meta.

    A settlement that runs again, because its commit went through unheard, finds neither ready row nor event: with its
    fence intact, that is its own trace.
    """
    settled: dict[int, set[int]] = defaultdict(set)
    for number, dest in sent:
        settled[number].add(dest)
    highest = fetch(connection, "SELECT MAX(id) FROM outbox_event")[0][0] or 0
    ids = sorted(number for number in settled if number < highest)
    if not ids:
        return set()
    found = events(connection, words, ids, lock=True)
    single = {one.id for one in found if one.destinations == 1}
    several = {one.id: one.destinations for one in found if one.destinations > 1}
    complete = _complete(connection, words, several, settled, partitions) if several else {}
    going = sorted(single | complete.keys())
    remove_events(connection, words, going)
    remove_receipts(connection, words, complete)
    return set(going)


def _complete(
    connection: Connection, words: Words, several: dict[int, int], settled: dict[int, set[int]], partitions: int
) -> dict[int, int]:
    """Of the events with several destinations, those whose others have receipts and no work."""
    ids = sorted(several)
    busy = with_work(connection, words, ids, partitions)
    receipts: dict[int, set[int]] = defaultdict(set)
    for number, dest in fetch(
        connection, f"SELECT id, dest FROM outbox_receipt{words.by_key} WHERE {words.among(ids)}"
    ):
        receipts[number].add(dest)
    return {
        number: count
        for number, count in several.items()
        if number not in busy and receipts[number] | settled[number] == set(range(count))
    }
