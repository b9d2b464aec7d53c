"""Whole partitions of tables that a DBA partitioned by RANGE (id): dropped when everything in them has been sent.

Dropping costs next to nothing and writes no rows to the log, but takes the table's exclusive lock for a moment, and
waits for every transaction that has used the table: at most the engine's lock time-out, else it is tried another time.

Unique keys of a partitioned table must contain the partition column, on PostgreSQL and on MySQL alike: the one on
event_id has to become (event_id, id), which refuses a second event with the same event id no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from sqlalchemy import Connection

from ..raw import fetch
from .bounds import Bounds
from .events import destinations
from .words import Words
from .work import any_work

_PAGE: Final = 5_000
_RANGE: Final = re.compile(r"^FOR VALUES FROM \('?(\d+|MINVALUE)'?\) TO \('?(\d+)'?\)$")


class Partition(NamedTuple):
    """A partition of ``table`` with the ids from ``low`` up to but without ``high``."""

    table: str
    name: str
    low: int
    high: int


def partitions_of(connection: Connection, words: Words, table: str) -> list[Partition]:
    """The partitions of a table that have an upper end, lowest first; none when it is not partitioned by its id."""
    if words.dialect == "postgresql":
        rows = fetch(
            connection,
            "SELECT i.inhrelid::regclass::text, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i"
            " JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_partitioned_table p ON p.partrelid = i.inhparent"
            f" WHERE i.inhparent = '{table}'::regclass AND p.partstrat = 'r' AND pg_get_partkeydef(i.inhparent)"
            " = 'RANGE (id)'",
        )
        bounded = [(name, _RANGE.match(text)) for name, text in rows]
        ends = [(name, found[1], int(found[2])) for name, found in bounded if found]
        return sorted(
            (Partition(table, name, 0 if low == "MINVALUE" else int(low), high) for name, low, high in ends),
            key=lambda one: one.low,
        )
    if words.dialect == "mysql":
        return _on_mysql(connection, table)
    return []


def _on_mysql(connection: Connection, table: str) -> list[Partition]:
    rows = fetch(
        connection,
        "SELECT partition_name, partition_description FROM information_schema.partitions"
        f" WHERE table_schema = DATABASE() AND table_name = '{table}' AND partition_method = 'RANGE'"
        " AND partition_expression IN ('id', '`id`') ORDER BY partition_ordinal_position",
    )
    found, low = [], 0
    for name, end in rows:
        if not str(end).isdecimal():  # MAXVALUE: where new rows go
            break
        found.append(Partition(table, name, low, int(end)))
        low = int(end)
    return found


def events_all_sent(connection: Connection, words: Words, partition: Partition, bounds: Bounds, after: int) -> Page:
    """Look at the next events behind the id ``after``: whether each has an old receipt for every destination."""
    rows = fetch(
        connection,
        "SELECT e.id, e.more_destinations, (SELECT COUNT(*) FROM outbox_receipt r WHERE r.id = e.id"
        f" AND r.sent_at <= '{bounds.sent_until}') FROM outbox_event e"
        f" WHERE e.id > {after:d} AND e.id >= {partition.low:d} AND e.id < {partition.high:d}"
        f" ORDER BY e.id LIMIT {_PAGE}",
    )
    sent = all(count == destinations(more) for _, more, count in rows)
    return Page(sent, len(rows), rows[-1][0] if len(rows) == _PAGE else None)


class Page(NamedTuple):
    """Whether all ``rows`` of a page are sent, and where the next page begins, None at the end."""

    sent: bool
    rows: int
    after: int | None


def has_work(connection: Connection, words: Words, partition: Partition, bounds: Bounds) -> bool:
    """Whether any id of the partition's range is ready or parked."""
    return any_work(connection, words, (partition.low, partition.high - 1), bounds.partitions)


def in_use(connection: Connection, partition: Partition, bounds: Bounds) -> bool:
    """For a partition of receipts: whether an event of its range is still there, or a receipt is too young."""
    within = f"id >= {partition.low:d} AND id < {partition.high:d}"
    return bool(
        fetch(connection, f"SELECT 1 FROM outbox_event WHERE {within} LIMIT 1")
        or fetch(connection, f"SELECT 1 FROM outbox_receipt WHERE {within} AND sent_at > '{bounds.sent_until}' LIMIT 1")
    )


def drop(connection: Connection, words: Words, partition: Partition, rows: int) -> bool:
    """Drop the partition if, under the table's lock, it still has ``rows`` rows: a late commit would have added one.

    ``rows`` below 0: whatever it has.
    """
    within = f"id >= {partition.low:d} AND id < {partition.high:d}"
    with _locked(connection, words, partition.table):
        if rows >= 0 and fetch(connection, f"SELECT COUNT(*) FROM {partition.table} WHERE {within}")[0][0] != rows:
            return False
        if words.dialect == "postgresql":
            connection.exec_driver_sql(f"DROP TABLE {partition.name}")
        else:
            connection.exec_driver_sql(f"ALTER TABLE {partition.table} DROP PARTITION `{partition.name}`")
    return True


@contextmanager
def _locked(connection: Connection, words: Words, table: str) -> Iterator[None]:
    if words.dialect == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield  # until the transaction ends
        return
    connection.exec_driver_sql(f"LOCK TABLES {table} WRITE")
    try:
        yield
    finally:
        connection.exec_driver_sql("UNLOCK TABLES")
