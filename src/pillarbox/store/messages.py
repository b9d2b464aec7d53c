"""From claimed rows to deliveries: reads the events by primary key, without ever filling the memory with payloads.

Payloads up to 64 KiB come with the event's row. Larger ones are fetched one by one while the claim's budget lasts; what
is beyond it is left unread, for the store to give back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from ..event.message import Message
from ..ports import Delivery, OrphanWork, WorkKey
from .claim import WorkRow
from .raw import fetch, in_parts, numbers

EVENTS_PER_STATEMENT: Final = 1_000

_SELECT: Final = (
    "SELECT id, event_id, event_type, schema_version, aggregate_type, aggregate_id, event_key, {occurred_at}, headers,"
    " content_type, CASE WHEN {length}(payload) <= 65536 THEN payload END, destination, routing_key, more_destinations"
    " FROM outbox_event"
)
_LENGTH: Final = {"postgresql": "octet_length", "sqlite": "length", "mysql": "LENGTH", "mariadb": "LENGTH"}


class Read(NamedTuple):
    """``unread`` rows would have burst the budget: they are still leased."""

    deliveries: list[Delivery]
    orphans: list[OrphanWork]
    unread: list[WorkKey]


def read(connection: Connection, rows: Iterable[WorkRow], budget: int) -> Read:
    """Read what ``rows`` stand for, payloads of at most ``budget`` bytes in all (but always one delivery)."""
    rows = sorted(rows)
    events = {event[0]: event for event in _events(connection, [row[1] for row in rows])}
    deliveries: list[Delivery] = []
    orphans: list[OrphanWork] = []
    unread: list[WorkKey] = []
    spent = 0
    for partition_no, number, dest, lane, attempts, claims in rows:
        key = WorkKey(partition_no, number, dest)
        event = events.get(number)
        message = None if event is None else _message(event, dest)
        if message is None:
            orphans.append(OrphanWork(key, lane, attempts, claims))
            continue
        if unread:  # nothing overtakes what did not fit
            unread.append(key)
            continue
        size = _size(connection, number) if message.payload is None else len(message.payload)
        if spent and spent + size > budget:
            unread.append(key)
            continue
        spent += size
        if message.payload is None:
            message = message._replace(payload=_payload(connection, number))
        deliveries.append(Delivery(key, lane, attempts, claims, message))
    return Read(deliveries, orphans, unread)


def _events(connection: Connection, ids: Sequence[int]) -> Iterable[tuple[Any, ...]]:
    dialect = connection.dialect.name
    if dialect == "postgresql":
        sql = _SELECT.format(length=_LENGTH[dialect], occurred_at="occurred_at") + " WHERE id = ANY(%s::bigint[])"
        with _binary(connection):
            return fetch(connection, sql, (numbers(ids),))
    # As text: PyMySQL needs longer to parse one DATETIME than most other columns together.
    moment, hint = ("occurred_at", "") if dialect == "sqlite" else ("CONCAT(occurred_at, '')", " FORCE INDEX (PRIMARY)")
    sql = _SELECT.format(length=_LENGTH[dialect], occurred_at=moment) + hint
    parts = (",".join(map(str, part)) for part in in_parts(ids, EVENTS_PER_STATEMENT))
    return [row for part in parts for row in fetch(connection, f"{sql} WHERE id IN ({part})")]


def _binary(connection: Connection) -> AbstractContextManager[None]:
    if connection.dialect.driver != "psycopg":
        return nullcontext()
    from .psycopg_connection import binary_rows  # the driver is optional

    return binary_rows(connection)


def _message(event: tuple[Any, ...], dest: int) -> Message | None:
    """The message for the event's n-th destination, or None when the event names no such destination."""
    (
        _,
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
    return Message(
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
    )


def _utc(moment: Any) -> datetime:
    """PostgreSQL's drivers give aware moments, the others a text in UTC."""
    if type(moment) is str:
        moment = datetime.fromisoformat(moment)
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)  # type: ignore[no-any-return]
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)  # type: ignore[no-any-return]


def _size(connection: Connection, number: int) -> int:
    length = _LENGTH[connection.dialect.name]
    return int(fetch(connection, f"SELECT {length}(payload) FROM outbox_event WHERE id = {number:d}")[0][0])


def _payload(connection: Connection, number: int) -> bytes:
    with _binary(connection):
        return bytes(fetch(connection, f"SELECT payload FROM outbox_event WHERE id = {number:d}")[0][0])
