"""What a pruner would do now: found by the same statements, without locks, and changing nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Connection

from ..policy.retention import Keep
from ..store import dbtime, inspect
from ..store.capabilities import detect
from ..store.prune.bounds import Bounds, bounds
from ..store.prune.dead import ended_after, removable_ended
from ..store.prune.sent import receipts_after, removable
from ..store.prune.words import Words, words_of
from ..store.prune.work import ENDED
from ..store.raw import fetch
from ..store.transactions import Transactions

_PAGE: Final = 1_000
Page = Callable[[Connection, int], tuple[int, int | None]]


class StateCount(NamedTuple):
    """Deliveries in a state, the age in seconds of the oldest (SENT: since it was sent; None: no age), and how many
    whole events among them would go."""

    deliveries: int
    oldest_age: float | None
    would_go: int


class Preview(NamedTuple):
    """By state; the events that would go altogether; the batches that takes."""

    states: dict[str, StateCount]
    events: int
    batches: int


def preview(tables: Transactions, keep: Keep, *, batch: int) -> Preview:
    """Count. It walks once along the old receipts, in short reads of 1,000 events each."""
    words = words_of(tables.read(detect))
    limits = tables.read(partial(bounds, words=words, keep=keep))
    going = {"SENT": _sent(tables, words, limits)}
    if keep.dead is not None:
        going |= {state: _ended(tables, words, state, limits) for state in ENDED}
    counts = tables.read(inspect.overview).counts
    ages = tables.read(_oldest)
    states = {state: StateCount(count, ages.get(state), going.get(state, 0)) for state, count in counts.items()}
    return Preview(states, sum(going.values()), sum(-(-count // batch) for count in going.values()))


def _sent(tables: Transactions, words: Words, limits: Bounds) -> int:
    def page(connection: Connection, after: int) -> tuple[int, int | None]:
        seen = receipts_after(connection, words, after, limits, _PAGE)
        found = removable(connection, words, seen, limits, lock=False)
        return len(found.events), seen[-1].id if len(seen) == _PAGE else None

    return _walked(tables, page)


def _ended(tables: Transactions, words: Words, state: str, limits: Bounds) -> int:
    def page(connection: Connection, after: int) -> tuple[int, int | None]:
        rows = ended_after(connection, words, state, after, limits, _PAGE)
        ids = sorted({number for number, old in rows if old})
        found = removable_ended(connection, words, ids, limits, lock=False)
        return len(found.events), rows[-1][0] if len(rows) >= _PAGE else None

    return _walked(tables, page)


def _walked(tables: Transactions, page: Page) -> int:
    total = 0
    after: int | None = 0
    while after is not None:
        count, after = tables.read(_behind(page, after))
        total += count
    return total


def _behind(page: Page, after: int) -> Callable[[Connection], tuple[int, int | None]]:
    return lambda connection: page(connection, after)


def _oldest(connection: Connection) -> dict[str, float]:
    parked = dbtime.age(connection, "MIN(error_at)")
    sent = dbtime.age(connection, "sent_at")
    rows = [
        *fetch(connection, f"SELECT state, {parked} FROM outbox_parked GROUP BY state"),
        *fetch(connection, f"SELECT 'SENT', {sent} FROM outbox_receipt ORDER BY id, dest LIMIT 1"),
    ]
    return {state: float(age) for state, age in rows if age is not None}
