"""Sending dead letters again, in batches and at a limited rate: a consumer that has just recovered is not flooded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Connection

from ..clock import Clock, SystemClock
from ..store import inspect
from ..store.dead import DeadFilter, dead_rows
from ..store.replay import bury as bury_in_transaction
from ..store.replay import replay as replay_in_transaction
from ..store.transactions import Transactions

Which = DeadFilter | Sequence[str]

BATCH: Final = 200
"""Deliveries in one transaction; fewer when the rate is lower, so that each second has its share."""


class Order(NamedTuple):
    """What to send again, who wants it and why. ``rate``: deliveries per second, 0 for no limit."""

    which: Which
    by: str
    reason: str
    rate: float = 500.0

    @property
    def batch(self) -> int:
        """Deliveries in one transaction."""
        return BATCH if self.rate <= 0 else max(1, min(BATCH, int(self.rate)))


def matching(connection: Connection, which: Which) -> int:
    """How many dead deliveries an order would take now."""
    return inspect.count_dead(connection, which if isinstance(which, DeadFilter) else list(which))


def not_dead(connection: Connection, event_ids: Sequence[str]) -> list[str]:
    """Those of ``event_ids`` that no dead letter has."""
    dead = {row.event_id for row in dead_rows(connection, event_ids)}
    return [event_id for event_id in event_ids if event_id not in dead]


def bury(tables: Transactions, event_ids: Sequence[str], *, by: str, reason: str) -> int:
    """Give these dead letters up for good; returns how many deliveries. What waited behind them goes on."""

    def some(connection: Connection, ids: Sequence[str]) -> int:
        return bury_in_transaction(connection, ids, by=by, reason=reason)

    parts = (event_ids[start : start + BATCH] for start in range(0, len(event_ids), BATCH))
    return sum(tables.write(partial(some, ids=part)) for part in parts)


def replay(
    tables: Transactions, order: Order, *, clock: Clock | None = None, pause: Callable[[float], None] = time.sleep
) -> Iterator[int]:
    """Send them again; yields the number of deliveries after each committed batch.

    Walks once through the letters in the order of their row ids: one that dies again meanwhile is not taken twice.
    Ending it early leaves what was yielded replayed and the rest dead.
    """
    time_source = clock or SystemClock()
    began, done = time_source.monotonic(), 0
    for moved in filter(None, _batches(tables, order)):
        done += moved
        yield moved
        if order.rate > 0:
            pause(max(0.0, began + done / order.rate - time_source.monotonic()))


def _batches(tables: Transactions, order: Order) -> Iterator[int]:
    if not isinstance(order.which, DeadFilter):
        for start in range(0, len(order.which), order.batch):
            yield tables.write(partial(_these, order=order, ids=order.which[start : start + order.batch]))
        return
    place: int | None = 0
    while place is not None:
        moved, place = tables.write(partial(_next, order=order, after=place))
        yield moved


def _these(connection: Connection, order: Order, ids: Sequence[str]) -> int:
    return replay_in_transaction(connection, ids, by=order.by, reason=order.reason, limit=0)


def _next(connection: Connection, order: Order, after: int) -> tuple[int, int | None]:
    """Replay the next batch behind row ``after``; the second value is where to go on, None at the end."""
    count, last = 0, after
    for row in dead_rows(connection, order.which, after=after):
        if count >= order.batch and row.id != last:  # the deliveries of one event stay together
            break
        count, last = count + 1, row.id
    else:
        if count == 0:
            return 0, None
    moved = replay_in_transaction(connection, order.which, by=order.by, reason=order.reason, limit=count, after=after)
    return moved, last
