"""From claimed rows to deliveries: reads the events by primary key, without ever filling the memory with payloads.

Payloads up to 64 KiB come with the event's row. Larger ones are fetched one by one while the claim's budget lasts; what
is beyond it is left unread, for the store to give back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from ..event.message import Message
from ..ports import Delivery, OrphanWork, WorkKey
from .claim import WorkRow
from .raw import fetch, in_parts, numbers

EVENTS_PER_STATEMENT: Final = 1_000

# The first columns are ours; from _MESSAGE on they are Message's fields in order, so that a slice is a message.
_COLUMNS: Final = (
    "id, {length}(payload), more_destinations, event_id, event_type, schema_version, aggregate_type, aggregate_id,"
    " event_key, {occurred_at}, headers, content_type, CASE WHEN {length}(payload) <= 65536 THEN payload END,"
    " destination, routing_key"
)
_ID, _SIZE, _MORE, _MESSAGE = 0, 1, 2, 3
_OCCURRED_AT: Final = _MESSAGE + Message._fields.index("occurred_at")


class Read(NamedTuple):
    """``unread`` rows would have burst the budget: they are still leased."""

    deliveries: list[Delivery]
    orphans: list[OrphanWork]
    unread: list[WorkKey]


def read(connection: Connection, rows: Iterable[WorkRow], budget: int) -> Read:
    """Read what ``rows`` stand for, payloads of at most ``budget`` bytes in all (but always one delivery)."""
    rows = sorted(rows)
    events = _events(connection, [row[1] for row in rows])
    found = Read([], [], [])
    spent = 0
    for row in rows:
        partition_no, number, dest, lane, attempts, claims = row
        key = WorkKey(partition_no, number, dest)
        event = events.get(number)
        message = _message(event, dest) if event is not None else None
        if event is None or message is None:
            found.orphans.append(OrphanWork(key, lane, attempts, claims))
            continue
        size = event[_SIZE]
        if spent and spent + size > budget:
            found.unread.append(key)
            continue
        spent += size
        if message.payload is None:
            message = message._replace(payload=_payload(connection, number))
        found.deliveries.append(Delivery(key, lane, attempts, claims, message))
    return found


def _events(connection: Connection, ids: Sequence[int]) -> dict[int, Sequence[Any]]:
    """The events' rows by id, with ``occurred_at`` as an aware datetime."""
    dialect = connection.dialect.name
    if dialect == "postgresql":  # gives aware datetimes
        sql = f"SELECT {_COLUMNS.format(length='octet_length', occurred_at='occurred_at')} FROM outbox_event"
        return {row[_ID]: row for row in fetch(connection, f"{sql} WHERE id = ANY(%s::bigint[])", (numbers(ids),))}
    if dialect == "sqlite":
        sql = f"SELECT {_COLUMNS.format(length='length', occurred_at='occurred_at')} FROM outbox_event"
    else:  # as text: PyMySQL needs longer to parse one DATETIME than all other columns together
        columns = _COLUMNS.format(length="LENGTH", occurred_at="CAST(occurred_at AS CHAR)")
        sql = f"SELECT {columns} FROM outbox_event FORCE INDEX (PRIMARY)"
    found: dict[int, Sequence[Any]] = {}
    for part in in_parts(ids, EVENTS_PER_STATEMENT):
        for row in fetch(connection, f"{sql} WHERE id IN ({','.join(map(str, part))})"):
            found[row[_ID]] = (*row[:_OCCURRED_AT], _utc(row[_OCCURRED_AT]), *row[_OCCURRED_AT + 1 :])
    return found


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _message(event: Sequence[Any], dest: int) -> Message | None:
    """The message for the event's n-th destination, or None when the event names no such destination."""
    message = Message._make(event[_MESSAGE:])
    if dest == 0:
        return message
    try:
        name, routing_key = json.loads(event[_MORE] or "[]")[dest - 1]
    except (ValueError, IndexError, TypeError):
        return None
    return message._replace(destination=name, routing_key=routing_key)


def _payload(connection: Connection, number: int) -> bytes:
    return bytes(fetch(connection, f"SELECT payload FROM outbox_event WHERE id = {number:d}")[0][0])
