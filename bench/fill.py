"""N events in the outbox tables, as `add` would have left them, by the quickest way in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Table, insert, text

from pillarbox.event.ids import EventIds
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.store.schema import outbox_event, outbox_metadata, outbox_ready

AGGREGATES = 1000
ROWS_PER_STATEMENT = 2000
ANALYZE = {
    "sqlite": "ANALYZE {}",
    "postgresql": "ANALYZE {}",
    "mysql": "ANALYZE TABLE {}",
    "mariadb": "ANALYZE TABLE {}",
}

Row = dict[str, Any]


def fill(connection: Connection, events: int, destination: str, payload_bytes: int, keys: int = AGGREGATES) -> None:
    """Write events with row ids 1 to ``events`` for ``destination``, committed, and have the server look at them.

    Without fresh statistics PostgreSQL sorts all pending rows for each claim, on both sides.
    """
    payload = payload_of(payload_bytes)
    for start in range(0, events, ROWS_PER_STATEMENT):
        ids = range(start + 1, min(start + ROWS_PER_STATEMENT, events) + 1)
        rows = list(event_rows(ids, destination, payload, keys))
        write(connection, outbox_event, rows)
        write(connection, outbox_ready, [ready_row(row["id"], row["event_key"]) for row in rows])
        connection.commit()
    for table in outbox_metadata.sorted_tables:
        connection.execute(text(ANALYZE.get(connection.dialect.name, "ANALYZE {}").format(table.name)))
    connection.commit()


def payload_of(size: int) -> bytes:
    """JSON text of ``size`` bytes that compresses like prose does, the same in every run."""
    letters = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz ", k=max(0, size - 11))
    return b'{"text":"' + "".join(letters).encode() + b'"}'


def event_rows(ids: range, destination: str, payload: bytes, keys: int) -> Iterator[Row]:
    """Rows of ``outbox_event``, their aggregates taking turns."""
    new = EventIds().new
    now = datetime.now(UTC)
    for number in ids:
        aggregate = f"order-{number % keys:04d}"
        yield {
            "id": number,
            "event_id": str(new()),
            "event_type": "order.created",
            "schema_version": 1,
            "aggregate_type": "order",
            "aggregate_id": aggregate,
            "event_key": aggregate,
            "destination": destination,
            "content_type": "application/json",
            "payload": payload,
            "occurred_at": now,
            "recorded_at": now,
        }


def ready_row(number: int, key: str) -> Row:
    """The row of ``outbox_ready`` that belongs to an event of this key."""
    lane = lane_of(key)
    return {"partition_no": partition_of(lane), "id": number, "dest": 0, "lane": lane}


def write(connection: Connection, table: Table, rows: list[Row]) -> None:
    """Insert with the driver's own bulk way: COPY for psycopg, one statement of many rows for the others."""
    if connection.dialect.name != "postgresql":
        connection.execute(insert(table), rows)
        return
    columns = ", ".join(rows[0])
    with connection.connection.cursor().copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(tuple(row.values()))
