"""Work rows with their events, as read, and how many of them fit into a budget of memory.

Payloads up to INLINE bytes come with the row. Larger ones are fetched one by one while the budget lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ..event.message import Message
from ..ports import Delivery, OrphanWork, WorkKey

INLINE: Final = 16_384

Row = tuple[WorkKey, int, int, int, Message | None]
"""What a Delivery consists of: key, lane, attempts, claims, message. The message is None for an orphan; its payload is
None when it is still to be fetched."""


class Found(NamedTuple):
    """Rows in order, and the size of each one's payload. ``whole``: nothing is missing and nothing is to be fetched."""

    rows: list[Row]
    sizes: list[int]
    whole: bool

    def and_then(self, more: Found) -> Found:
        """These rows and more behind them."""
        if not self.rows:
            return more
        return Found(self.rows + more.rows, self.sizes + more.sizes, self.whole and more.whole)


class Fitting(NamedTuple):
    """What fits. ``left`` rows do not: nothing overtakes the first of them. ``bytes`` is what all rows came to."""

    deliveries: list[Delivery]
    orphans: list[OrphanWork]
    left: list[Row]
    bytes: int


Fetch = Callable[[int], bytes | None]
"""The payload of the event with this row id; None when it is gone."""


def fit(found: Found, budget: int, fetch: Fetch) -> Fitting:
    """Payloads of at most ``budget`` bytes in all, but always one delivery."""
    total = sum(found.sizes)
    if found.whole and total <= budget:
        deliveries: Any = found.rows  # Delivery objects already
        return Fitting(deliveries, [], [], total)
    return _one_by_one(found, budget, fetch)._replace(bytes=total)


def row_of(key: WorkKey, lane: int, attempts: int, claims: int, message: Message | None) -> Row:
    """A Delivery, also where the message is missing; quicker than its constructor, which is the most of a read."""
    row: Row = tuple.__new__(Delivery, (key, lane, attempts, claims, message))
    return row


def _one_by_one(found: Found, budget: int, fetch: Fetch) -> Fitting:
    fitting = Fitting([], [], [], 0)
    spent = 0
    for row, size in zip(found.rows, found.sizes, strict=True):
        key, lane, attempts, claims, message = row
        if fitting.left or (spent and spent + size > budget):
            fitting.left.append(row)
            continue
        if message is not None and message.payload is None:
            payload: Any = fetch(key.id)
            message = None if payload is None else message._replace(payload=payload)
        if message is None:
            fitting.orphans.append(OrphanWork(key, lane, attempts, claims))
            continue
        spent += size
        fitting.deliveries.append(Delivery(key, lane, attempts, claims, message))
    return fitting
