"""Looking at the outbox without touching it: counts, lag, dead letters. Functions of a connection that only read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, select, text

from ..errors import DeadLetterNotFound
from ..event.message import Message
from ..ports import DeadLetter, Overview
from . import dbtime
from .backlog import oldest_age
from .dead import DeadFilter, DeadRow, dead_rows, ended_rows
from .schema import outbox_event, outbox_replay

COUNTED: Final = 1_000_000
"""Receipts are counted up to here; beyond, the count is the server's own estimate."""

_ESTIMATE: Final = {
    "postgresql": "SELECT CAST(reltuples AS bigint) FROM pg_class WHERE oid = 'outbox_receipt'::regclass",
    "mysql": "SELECT table_rows FROM information_schema.tables"
    " WHERE table_schema = DATABASE() AND table_name = 'outbox_receipt'",
    "sqlite": "SELECT count(*) FROM outbox_receipt",
}


class ReplayRecord(NamedTuple):
    """One replay of a dead letter: who, when, why, and what had failed."""

    dest: int
    replayed_at: datetime
    replayed_by: str
    reason: str
    attempts: int
    error: str


class DeadLetterDetails(NamedTuple):
    """A dead event: its message, its dead deliveries, and how often it was replayed before."""

    message: Message
    letters: list[DeadLetter]
    replays: list[ReplayRecord]


def overview(connection: Connection) -> Overview:
    """Deliveries by state and the age of the oldest one that could have been sent: not scheduled, not given up.

    PENDING, PROCESSING, RETRY, DEAD and SENT are always there; SCHEDULED, HELD, BURIED and MISPLACED (a ready row in a
    partition that is not its lane's: the hand of a writer with another number of partitions) when something is in them.
    The cost follows the backlog and the dead letters, not the history: more than a million receipts are estimated.
    """
    counts = dict.fromkeys(("PENDING", "PROCESSING", "RETRY", "DEAD"), 0)
    partitions = connection.execute(text("SELECT partitions FROM outbox_meta WHERE one = 1")).scalar_one()
    for state, count in connection.execute(
        text(
            "SELECT state, COUNT(*) FROM outbox_parked GROUP BY state UNION ALL SELECT r.state, COUNT(*) FROM"
            f" (SELECT CASE WHEN lane % {partitions:d} <> partition_no THEN 'MISPLACED'"
            f" WHEN leased_until > {dbtime.now(connection)} THEN 'PROCESSING' ELSE 'PENDING' END AS state"
            " FROM outbox_ready) r GROUP BY r.state"
        )
    ):
        counts[state] = count
    return Overview(counts | {"SENT": _receipts(connection)}, oldest_age(connection, partitions))


def dead_letters(
    connection: Connection, limit: int = 100, after: str | None = None, *, which: DeadFilter | None = None
) -> list[DeadLetter]:
    """Dead letters in the order in which they were recorded, from behind the event ``after`` on (for the next page).

    A page has ``limit`` letters, or a few more: the deliveries of one event are not torn apart. Work without its event
    stands as ``row:<number>`` in the event id's place.
    """
    if limit < 1:
        return []
    rows = dead_rows(connection, which or DeadFilter(), after=_number(connection, after), with_orphans=which is None)
    found = list(islice(rows, limit))
    found += _others_of_last(found, rows)
    return [_letter(row) for row in found]


def count_dead(connection: Connection, which: DeadFilter | Sequence[str] | None = None) -> int:
    """How many dead letters a replay of ``which`` would take."""
    return sum(1 for _ in dead_rows(connection, which or DeadFilter()))


def dead_letter(connection: Connection, event_id: str) -> DeadLetterDetails:
    """Everything about one dead or buried event. DeadLetterNotFound (PB-050) when no delivery of it is either."""
    rows = ended_rows(connection, event_id)
    if not rows:
        raise DeadLetterNotFound(f"No dead letter has the event id {event_id!r}.")
    event = connection.execute(select(outbox_event).where(outbox_event.c.id == rows[0].id)).one()
    replays = connection.execute(
        select(outbox_replay).where(outbox_replay.c.id == event.id).order_by(outbox_replay.c.seq)
    )
    history = [
        ReplayRecord(r.dest, dbtime.aware(r.replayed_at), r.replayed_by, r.reason, r.attempts, r.error) for r in replays
    ]
    return DeadLetterDetails(_message(event), [_letter(row) for row in rows], history)


def _receipts(connection: Connection) -> int:
    counted = connection.execute(
        text(f"SELECT COUNT(*) FROM (SELECT id FROM outbox_receipt LIMIT {COUNTED + 1}) r")
    ).scalar_one()
    if counted <= COUNTED:
        return int(counted)
    name = connection.dialect.name
    estimate = connection.execute(text(_ESTIMATE["mysql" if name == "mariadb" else name])).scalar_one()
    return max(int(estimate), COUNTED)


def _number(connection: Connection, event_id: str | None) -> int:
    if event_id is None:
        return 0
    if event_id.startswith("row:") and event_id[4:].isdecimal():
        return int(event_id[4:])
    found = connection.scalar(select(outbox_event.c.id).where(outbox_event.c.event_id == event_id))
    if found is None:
        raise DeadLetterNotFound(f"There is no event with the id {event_id!r} to continue after.")
    return int(found)


def _others_of_last(found: list[DeadRow], rest: Iterator[DeadRow]) -> list[DeadRow]:
    others: list[DeadRow] = []
    for row in rest if found else ():
        if row.id != found[-1].id:
            break
        others.append(row)
    return others


def _letter(row: DeadRow) -> DeadLetter:
    return DeadLetter(
        row.event_id or f"row:{row.id}",
        row.event_type or "",
        row.goes_to.name,
        row.dest,
        row.attempts,
        row.error,
        dbtime.aware(row.error_at),
        row.replays,
        row.state,
    )


def _message(event: Any) -> Message:
    return Message(
        event.event_id,
        event.event_type,
        event.schema_version,
        event.aggregate_type,
        event.aggregate_id,
        event.event_key,
        dbtime.aware(event.occurred_at),
        event.headers,
        event.content_type,
        bytes(event.payload),
        event.destination,
        event.routing_key,
    )
