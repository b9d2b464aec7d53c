"""One event as it is written, and what the writers of the servers share. A module for each kind of server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from ...event.destination import Destination
from ...event.message import Message
from ...policy.lanes import PARTITIONS, lane_of, partition_of

COLUMNS: Final = (
    "event_id, event_type, schema_version, aggregate_type, aggregate_id, event_key, occurred_at, headers, "
    "content_type, payload, destination, routing_key, more_destinations"
)
"""In the order of Message's fields, so that a message is the parameter list."""

MARKS: Final = ", ".join("?" * 13)
OCCURRED_AT: Final = Message._fields.index("occurred_at")


class Later(NamedTuple):
    """When the deliveries of an event may go (UTC), and the hashed destination of each."""

    due: datetime
    targets: tuple[int, ...]


class Row(NamedTuple):
    """One event as it is written: its columns and its place in the queue. ``deliveries`` counts its destinations.

    Of rows that are written together, either all go ``later``, at the same time, or none.
    """

    message: Message
    more_destinations: str | None
    deliveries: int
    lane: int
    partition_no: int
    later: Later | None = None


class Executor(Protocol):
    """Runs SQL on the caller's connection. ``sql`` has ``?`` for its parameters; the executor knows its own style.

    ``bytes_as_hex``: the driver takes no bytes as parameters (aiomysql 0.3 beside PyMySQL 1.2).
    """

    bytes_as_hex: bool

    def inserted(self, sql: str, parameters: Sequence[object]) -> int:
        """Run one INSERT; the id that the database gave to the (first) row, 0 where it gives none."""
        ...

    def insert_each(self, sql: str, parameters: Sequence[Sequence[object]]) -> None:
        """Run one INSERT for each parameter list."""
        ...

    def returned(self, sql: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        """Run a statement and fetch the rows it returns."""
        ...


Write = Callable[[Executor, Sequence[Row]], list[int]]


def row_of(
    message: Message,
    more: Sequence[Destination] = (),
    *,
    partitions: int = PARTITIONS,
    due: datetime | None = None,
) -> Row:
    """Place a message in its lane: by its key, or by its own id where it has none. ``due`` (UTC): not before then."""
    lane = lane_of(message.event_id if message.key is None else message.key)
    text = json.dumps([list(one) for one in more], ensure_ascii=False, separators=(",", ":")) if more else None
    later = None if due is None else Later(due, tuple(map(lane_of, (message.destination, *(one.name for one in more)))))
    return Row(message, text, 1 + len(more), lane, partition_of(lane, partitions), later)


# Shared by MySQL and SQLite ---------------------------------------------------------------------------------------


def event_parameters(row: Row, moment: Callable[[Any], object]) -> list[object]:
    """In the order of COLUMNS, the time as ``moment`` makes it."""
    parameters: list[object] = [*row.message, row.more_destinations]
    parameters[OCCURRED_AT] = moment(row.message.occurred_at)
    return parameters


def naive(moment: Any) -> object:
    """For MySQL."""
    return moment.replace(tzinfo=None)  # messages are in UTC


def as_text(moment: Any) -> object:
    """For SQLite, whose times are texts that compare."""
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def read_ids(execute: Executor, rows: Sequence[Row]) -> list[int]:
    """Uses UNIQUE(event_id)."""
    sql = f"SELECT event_id, id FROM outbox_event WHERE event_id IN ({', '.join('?' * len(rows))})"
    ids = dict(pairs(execute.returned(sql, [row.message.event_id for row in rows])))
    return [ids[row.message.event_id] for row in rows]


def pairs(found: Sequence[Sequence[Any]]) -> Iterator[tuple[str, int]]:
    """Rows of two columns."""
    return ((one[0], one[1]) for one in found)


def later_deliveries(
    rows: Sequence[Row], ids: Sequence[int], moment: Callable[[Any], object]
) -> list[tuple[object, ...]]:
    """Work rows of events that go later: partition_no, lane, id, dest, due_at, target."""
    return [
        (row.partition_no, row.lane, row_id, dest, moment(row.later.due), target)
        for row, row_id in zip(rows, ids, strict=True)
        if row.later is not None
        for dest, target in enumerate(row.later.targets)
    ]


def deliveries_of(rows: Sequence[Row], ids: Sequence[int]) -> list[tuple[object, ...]]:
    """Work rows of events that go now: partition_no, id, dest, lane."""
    both = zip(rows, ids, strict=True)
    return [(row.partition_no, row_id, dest, row.lane) for row, row_id in both for dest in range(row.deliveries)]
