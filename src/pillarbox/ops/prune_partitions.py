"""Dropping whole partitions of outbox_event and outbox_receipt, where a DBA made some by RANGE (id)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sqlalchemy import Connection, Engine

from ..errors import PartitionsUnfit, PrunerElsewhere
from ..policy.retention import Keep
from ..store.capabilities import detect
from ..store.prune.alone import turn
from ..store.prune.bounds import Bounds, bounds
from ..store.prune.partitions import Partition, drop, events_all_sent, has_work, in_use, partitions_of
from ..store.prune.words import Words, words_of
from ..store.transactions import Transactions

__all__ = ["Partition", "drop_partitions"]


def drop_partitions(engine: Engine, keep: Keep, *, dry_run: bool = False) -> Iterator[Partition]:
    """Drop the partitions of which every event was sent long enough ago; yields each, after it was dropped.

    The lowest first, and no further than the first one that must stay. Receipts go after their events. The highest id
    is never in a partition that goes. With ``dry_run`` nothing is dropped, and only partitions of events are found.

    Raises PartitionsUnfit (PB-072), PrunerElsewhere (PB-070), DatabaseBusy (PB-031) when a long transaction keeps the
    table's lock away: run it again.
    """
    tables = Transactions(engine, tries=1)
    words = words_of(tables.read(detect))
    mine = turn(engine)
    if not mine.take():
        raise PrunerElsewhere("Another pruner is at work on this database.")
    try:
        limits = tables.read(partial(bounds, words=words, keep=keep))
        of_events = tables.read(partial(partitions_of, words=words, table="outbox_event"))
        of_receipts = tables.read(partial(partitions_of, words=words, table="outbox_receipt"))
        if not of_events and not of_receipts:
            raise PartitionsUnfit("Neither outbox_event nor outbox_receipt is partitioned by RANGE (id).")
        yield from _events(tables, words, of_events, limits, dry_run)
        if not dry_run:
            yield from _receipts(tables, words, of_receipts, limits)
    finally:
        mine.leave()


def _events(
    tables: Transactions, words: Words, found: list[Partition], limits: Bounds, dry_run: bool
) -> Iterator[Partition]:
    for one in found:
        rows = _finished_rows(tables, words, one, limits)
        if rows is None or not (dry_run or tables.write(partial(drop, words=words, partition=one, rows=rows))):
            return
        yield one


def _finished_rows(tables: Transactions, words: Words, one: Partition, limits: Bounds) -> int | None:
    """How many events the partition has, None when one of them must stay. Read in pages, so that none takes long."""
    if one.high > min(limits.highest, limits.end):
        return None
    if tables.read(partial(has_work, words=words, partition=one, bounds=limits)):
        return None
    rows, after = 0, one.low - 1
    while True:
        page = tables.read(
            lambda c, behind=after: events_all_sent(c, words, one, limits, behind)  # type: ignore[misc]
        )
        if not page.sent:
            return None
        rows += page.rows
        if page.after is None:
            return rows
        after = page.after


def _receipts(tables: Transactions, words: Words, found: list[Partition], limits: Bounds) -> Iterator[Partition]:
    for one in found:
        if one.high > limits.highest or tables.read(partial(in_use, partition=one, bounds=limits)):
            return
        tables.write(partial(_drop_receipts, words=words, one=one))
        yield one


def _drop_receipts(connection: Connection, words: Words, one: Partition) -> bool:
    return drop(connection, words, one, -1)
