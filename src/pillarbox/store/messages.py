"""From claimed rows to deliveries: reads the events by primary key, without ever filling the memory with payloads.

What is beyond the claim's budget is left unread, for the store to give back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from ..event.message import Message
from ..ports import Delivery, OrphanWork, WorkKey
from .claim import WorkRow
from .found import INLINE, Found, fit, row_of
from .packed import SEPARATOR, packed, part_count
from .packed import message_of as unpacked_message
from .raw import fetch, in_parts, numbers

EVENTS_PER_STATEMENT: Final = 1_000

_COLUMNS: Final = (
    "event_id, event_type, schema_version, aggregate_type, aggregate_id, event_key, {moment}, headers, content_type,"
    " {payload}, destination, routing_key, more_destinations"
)
_LENGTH: Final = {"postgresql": "octet_length", "sqlite": "length", "mysql": "LENGTH", "mariadb": "LENGTH"}


_Understand = Callable[[Any, int], tuple[int, Message | None]]


class Read(NamedTuple):
    """``unread`` rows would have burst the budget: they are still leased."""

    deliveries: list[Delivery]
    orphans: list[OrphanWork]
    unread: list[WorkKey]


def read(connection: Connection, rows: Iterable[WorkRow], budget: int) -> Read:
    """Read what ``rows`` stand for, payloads of at most ``budget`` bytes in all (but always one delivery)."""
    rows = sorted(rows)
    fitting = fit(_found(connection, rows), budget, lambda number: payload_of(connection, number))
    return Read(fitting.deliveries, fitting.orphans, [key for key, *_ in fitting.left])


def event_columns(table: str, payload: str) -> str:
    """The columns that :func:`message_of` takes, of the table's alias; ``payload`` is SQL."""
    names = _COLUMNS.format(moment="occurred_at", payload="").split(", ")
    return ", ".join(f"{table}.{name}" if name else payload for name in names)


def message_of(event: Sequence[Any], dest: int) -> Message | None:
    """The message for the event's n-th destination, or None when the event names no such destination."""
    (
        event_id,
        event_type,
        version,
        aggregate_type,
        aggregate_id,
        key,
        moment,
        headers,
        content_type,
        payload,
        destination,
        routing_key,
        more,
    ) = event
    if type(payload) is memoryview:  # psycopg2
        payload = payload.tobytes()
    if dest > 0:
        try:
            destination, routing_key = json.loads(more or "[]")[dest - 1]
        except (ValueError, IndexError, TypeError):
            return None
    return tuple.__new__(
        Message,
        (
            event_id,
            event_type,
            version,
            aggregate_type,
            aggregate_id,
            key,
            _utc(moment),
            headers,
            content_type,
            payload,
            destination,
            routing_key,
        ),
    )


def one(connection: Connection, key: WorkKey) -> tuple[int, Message | None]:
    """The size and message of one work row, column by column; the payload is None, to be fetched."""
    size = f"{_LENGTH[connection.dialect.name]}(payload)"
    mysql = connection.dialect.name in {"mysql", "mariadb"}
    columns = _COLUMNS.format(moment="CONCAT(occurred_at, '')" if mysql else "occurred_at", payload="NULL")
    found = fetch(connection, f"SELECT {size}, {columns} FROM outbox_event WHERE id = {key.id:d}")
    return (found[0][0], message_of(found[0][1:], key.dest)) if found else (0, None)


def payload_of(connection: Connection, number: int) -> bytes | None:
    """The payload of the event with this row id."""
    with binary(connection):
        found = fetch(connection, f"SELECT payload FROM outbox_event WHERE id = {number:d}")
    return bytes(found[0][0]) if found else None


def binary(connection: Connection) -> AbstractContextManager[None]:
    """psycopg gets rows in binary inside; other drivers know one format only."""
    if connection.dialect.driver != "psycopg":
        return nullcontext()
    from .psycopg_connection import binary_rows  # the driver is optional

    return binary_rows(connection)


def _found(connection: Connection, rows: Sequence[WorkRow]) -> Found:
    ids = [row[1] for row in rows]
    mysql = connection.dialect.name in {"mysql", "mariadb"}
    events = _packed_events(connection, ids) if mysql else _events(connection, ids)
    understand: _Understand = _unpacked if mysql else _plain
    found = Found([], [], False)
    for partition_no, number, dest, lane, attempts, claims in rows:
        key = WorkKey(partition_no, number, dest)
        event = events.get(number)
        size, message = one(connection, key) if event is None else understand(event, dest)
        found.rows.append(row_of(key, lane, attempts, claims, message))
        found.sizes.append(size)
    return found


def _events(connection: Connection, ids: Sequence[int]) -> dict[int, Any]:
    length = f"{_LENGTH[connection.dialect.name]}(e.payload)"
    columns = event_columns("e", f"CASE WHEN {length} <= {INLINE} THEN e.payload END")
    sql = f"SELECT e.id, {length}, {columns} FROM outbox_event e WHERE e.id"
    if connection.dialect.name == "postgresql":
        with binary(connection):
            return {row[0]: row for row in fetch(connection, f"{sql} = ANY(%s::bigint[])", (numbers(ids),))}
    parts = (",".join(map(str, part)) for part in in_parts(ids, EVENTS_PER_STATEMENT))
    return {row[0]: row for part in parts for row in fetch(connection, f"{sql} IN ({part})")}


def _packed_events(connection: Connection, ids: Sequence[int]) -> dict[int, Any]:
    """An event that is too large as one column is left out, like one that is missing."""
    sql = f"SELECT {packed('e.id', INLINE)} FROM outbox_event e FORCE INDEX (PRIMARY) WHERE e.id IN"
    events: dict[int, Any] = {}
    for part in in_parts(ids, EVENTS_PER_STATEMENT):
        for (row,) in fetch(connection, f"{sql} ({','.join(map(str, part))})"):
            if row is not None:
                parts = row.split(SEPARATOR, part_count(1) - 1)
                events[int(parts[0])] = parts
    return events


def _plain(event: Sequence[Any], dest: int) -> tuple[int, Message | None]:
    return event[1], message_of(event[2:], dest)


def _unpacked(parts: list[bytes], dest: int) -> tuple[int, Message | None]:
    return unpacked_message(parts[1:], dest)


def _utc(moment: Any) -> datetime:
    """PostgreSQL's drivers give aware moments, SQLite's a text in UTC."""
    if type(moment) is str:
        moment = datetime.fromisoformat(moment)
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)  # type: ignore[no-any-return]
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)  # type: ignore[no-any-return]
