"""Work rows with their events, as read, and how many of them fit into a budget of memory.

Payloads up to INLINE bytes come with the row. Larger ones are fetched one by one while the budget lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ..event.message import Message
from ..ports import Delivery, OrphanWork, WorkKey

INLINE: Final = 16_384


class Found(NamedTuple):
    """A work row. ``message`` is None for an orphan; its payload is None when it is still to be fetched."""

    key: WorkKey
    lane: int
    attempts: int
    claims: int
    size: int
    message: Message | None


class Fitting(NamedTuple):
    """What fits. ``left`` rows do not: nothing overtakes the first of them. ``bytes`` is what all rows came to."""

    deliveries: list[Delivery]
    orphans: list[OrphanWork]
    left: list[Found]
    bytes: int


Fetch = Callable[[int], bytes | None]
"""The payload of the event with this row id; None when it is gone."""


def fit(rows: Iterable[Found], budget: int, fetch: Fetch) -> Fitting:
    """Payloads of at most ``budget`` bytes in all, but always one delivery."""
    fitting = Fitting([], [], [], 0)
    deliveries, orphans, left = fitting.deliveries, fitting.orphans, fitting.left
    spent = total = 0
    for row in rows:
        key, lane, attempts, claims, size, message = row
        total += size
        if left or (spent and spent + size > budget):
            left.append(row)
            continue
        if message is not None and message.payload is None:
            payload: Any = fetch(key.id)
            message = None if payload is None else message._replace(payload=payload)
        if message is None:
            orphans.append(OrphanWork(key, lane, attempts, claims))
            continue
        spent += size
        deliveries.append(tuple.__new__(Delivery, (key, lane, attempts, claims, message)))
    return fitting._replace(bytes=total)
