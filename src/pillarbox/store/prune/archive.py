"""A copy of what goes: in two tables of the same database, or as rows for a function of the user.

``outbox_archive`` has the events, ``outbox_archive_delivery`` what became of each delivery. The copy is made by the
server itself, in the transaction that deletes; no payload travels. They have no secondary index, and nothing reads
them: move, export, partition or truncate them as you like.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Connection, MetaData, Table, select

from ...event.message import Message
from .. import dbtime
from ..catalog import has_table
from ..raw import in_parts
from ..schema import outbox_event, outbox_parked, outbox_receipt
from .words import IDS_PER_STATEMENT, Words
from .work import ENDED, quoted

archive_metadata = MetaData()
_options: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mariadb_engine": "InnoDB",
    "mysql_row_format": "DYNAMIC",
    "mariadb_row_format": "DYNAMIC",
}


def _like(column: Column[Any], *, key: bool = False, nullable: bool | None = None) -> Column[Any]:
    empty = column.nullable if nullable is None else nullable
    return Column(column.name, column.type, primary_key=key, nullable=empty and not key, autoincrement=False)


# The event id is the key, not the row id: those begin again when somebody empties outbox_event with TRUNCATE.
outbox_archive = Table(
    "outbox_archive",
    archive_metadata,
    _like(outbox_event.c.event_id, key=True),
    *(_like(column) for column in outbox_event.c if column.name != "event_id"),
    Column("archived_at", outbox_event.c.recorded_at.type, nullable=False),
    **_options,
)
outbox_archive_delivery = Table(
    "outbox_archive_delivery",
    archive_metadata,
    _like(outbox_event.c.event_id, key=True),
    _like(outbox_receipt.c.dest, key=True),
    _like(outbox_parked.c.state),  # SENT, DEAD or BURIED
    Column("ended_at", outbox_receipt.c.sent_at.type, nullable=False),
    *(_like(column, nullable=True) for column in outbox_receipt.c if column.name not in ("id", "dest", "sent_at")),
    _like(outbox_parked.c.error, nullable=True),
    **_options,
)

_EVENT_COLUMNS: Final = ", ".join(column.name for column in outbox_event.c)
_DELIVERY_COLUMNS: Final = "event_id, dest, state, ended_at, relay, token, broker_partition, broker_offset, error"
_ENDED: Final = quoted(ENDED)


class ArchivedDelivery(NamedTuple):
    """How one delivery ended: SENT by a relay at a time, or DEAD or BURIED with an error."""

    dest: int
    state: str
    ended_at: datetime
    relay: str | None
    broker_partition: int | None
    broker_offset: int | None
    error: str | None


class ArchivedEvent(NamedTuple):
    """One event that is about to be removed. ``message`` names its first destination, ``more_destinations`` the others
    as JSON ``[[name, routing key or null], …]``."""

    id: int
    message: Message
    more_destinations: str | None
    recorded_at: datetime
    deliveries: list[ArchivedDelivery]


def create_archive(connection: Connection) -> None:
    """Create the two tables where they are missing. Takes the right to create tables, the first time."""
    for table in archive_metadata.sorted_tables:
        if not has_table(connection, table.name):
            table.create(connection, checkfirst=False)


def copy_to_archive(connection: Connection, words: Words, ids: Sequence[int]) -> None:
    """Copy events with their receipts and dead ends. One that is there already (a restored backup) is left as it is."""
    now = dbtime.now(connection).replace("\\:", ":")
    keep = _keep(words)
    for part in in_parts(ids, IDS_PER_STATEMENT):
        listed = words.among(part, "e.id")
        connection.exec_driver_sql(
            f"INSERT INTO outbox_archive ({_EVENT_COLUMNS}, archived_at) SELECT {_prefixed(_EVENT_COLUMNS)}, {now}"
            f" FROM outbox_event e WHERE {listed}{keep.format(key='event_id')}"
        )
        delivered = (
            "SELECT e.event_id, w.dest, 'SENT', w.sent_at, w.relay, w.token, w.broker_partition, w.broker_offset, NULL"
            f" FROM outbox_event e JOIN outbox_receipt w ON w.id = e.id WHERE {listed}"
        )
        ended = (
            "SELECT e.event_id, w.dest, w.state, w.error_at, NULL, NULL, NULL, NULL, w.error"
            f" FROM outbox_event e JOIN outbox_parked w ON w.id = e.id AND w.state IN ({_ENDED}) WHERE {listed}"
        )
        for source in (delivered, ended):
            connection.exec_driver_sql(
                f"INSERT INTO outbox_archive_delivery ({_DELIVERY_COLUMNS}) {source}"
                + keep.format(key="event_id, dest")
            )


def archived_events(connection: Connection, ids: Sequence[int]) -> list[ArchivedEvent]:
    """The events with these ids as a user's function gets them, in order."""
    deliveries = _deliveries(connection, ids)
    found: list[ArchivedEvent] = []
    for part in in_parts(ids, IDS_PER_STATEMENT):
        rows = connection.execute(select(outbox_event).where(outbox_event.c.id.in_(part)).order_by(outbox_event.c.id))
        found += [
            ArchivedEvent(
                row.id, _message(row), row.more_destinations, dbtime.aware(row.recorded_at), deliveries.get(row.id, [])
            )
            for row in rows
        ]
    return found


def _deliveries(connection: Connection, ids: Sequence[int]) -> dict[int, list[ArchivedDelivery]]:
    found: dict[int, list[ArchivedDelivery]] = {}
    receipt, parked = outbox_receipt.c, outbox_parked.c
    for part in in_parts(ids, IDS_PER_STATEMENT):
        for row in connection.execute(
            select(outbox_receipt).where(receipt.id.in_(part)).order_by(receipt.id, receipt.dest)
        ):
            found.setdefault(row.id, []).append(
                ArchivedDelivery(
                    row.dest,
                    "SENT",
                    dbtime.aware(row.sent_at),
                    row.relay,
                    row.broker_partition,
                    row.broker_offset,
                    None,
                )
            )
        ended = select(parked.id, parked.dest, parked.state, parked.error_at, parked.error)
        for number, dest, state, moment, error in connection.execute(
            ended.where(parked.state.in_(ENDED), parked.id.in_(part)).order_by(parked.id, parked.dest)
        ):
            found.setdefault(number, []).append(
                ArchivedDelivery(dest, state, dbtime.aware(moment), None, None, None, error)
            )
    return {number: sorted(rows) for number, rows in found.items()}


def _message(row: Any) -> Message:
    return Message(
        row.event_id,
        row.event_type,
        row.schema_version,
        row.aggregate_type,
        row.aggregate_id,
        row.event_key,
        dbtime.aware(row.occurred_at),
        row.headers,
        row.content_type,
        bytes(row.payload),
        row.destination,
        row.routing_key,
    )


def _keep(words: Words) -> str:
    # Not INSERT IGNORE, which would also swallow values that do not fit.
    if words.dialect == "mysql":
        return " ON DUPLICATE KEY UPDATE event_id = VALUES(event_id)"
    return " ON CONFLICT ({key}) DO NOTHING"


def _prefixed(columns: str) -> str:
    return ", ".join(f"e.{name}" for name in columns.split(", "))
