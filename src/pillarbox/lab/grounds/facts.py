"""Reading all that the two databases of a cell hold of some events: a handful of statements, joined in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, text

from ..model import EventId, Facts, NotVisible, Record, Row

_AT_ONCE: Final = 400  # ids in one statement: SQLite once took 999 parameters at most

_ALARMS: Final = "SELECT event_id, device, raised_at FROM lab_alarm WHERE event_id IN :ids"
_NOTIFICATIONS: Final = (
    "SELECT event_id, id, consumer, made_at FROM lab_notification WHERE event_id IN :ids ORDER BY id"
)
_MARKS: Final = "SELECT event_id, consumer, applied_at FROM inbox_event WHERE event_id IN :ids ORDER BY applied_at"
# The view that people look at, too: it knows best what state an event is in.
_STATUS: Final = (
    "SELECT event_id, status, event_type, event_key, destination, routing_key, retry_count, next_retry_at, locked_by,"
    " locked_until, sent_at, sent_by, broker_partition, broker_offset, last_error, last_error_at, occurred_at,"
    " recorded_at, id, dest FROM outbox_status WHERE event_id IN :ids ORDER BY id, dest"
)
_RECEIPTS: Final = (
    "SELECT e.event_id, r.dest, r.sent_at, r.relay, r.token, r.broker_partition, r.broker_offset FROM outbox_receipt r"
    " JOIN outbox_event e ON e.id = r.id WHERE e.event_id IN :ids ORDER BY r.sent_at"
)
_FAILURES: Final = (
    "SELECT e.event_id, p.dest, p.state, p.attempts, p.due_at, p.error, p.error_at FROM outbox_parked p"
    " JOIN outbox_event e ON e.id = p.id WHERE e.event_id IN :ids AND p.error <> '' ORDER BY p.error_at"
)
_REPLAYS: Final = (
    "SELECT e.event_id, p.dest, p.replayed_at, p.replayed_by, p.reason, p.attempts, p.error FROM outbox_replay p"
    " JOIN outbox_event e ON e.id = p.id WHERE e.event_id IN :ids ORDER BY p.seq"
)


class _Look(NamedTuple):
    """A statement, the table that its rows are shown under, and the column that says when."""

    sql: str
    table: str
    moment: str


_ALARM: Final = _Look(_ALARMS, "lab_alarm", "raised_at")
_OUTBOX: Final = _Look(_STATUS, "outbox_status", "recorded_at")
_HISTORY: Final = (
    _Look(_FAILURES, "outbox_parked", "error_at"),
    _Look(_REPLAYS, "outbox_replay", "replayed_at"),
    _Look(_RECEIPTS, "outbox_receipt", "sent_at"),
)
_MARK: Final = _Look(_MARKS, "inbox_event", "applied_at")
_EFFECT: Final = _Look(_NOTIFICATIONS, "lab_notification", "made_at")


def read_facts(
    shop: Connection, consumers: Connection, event_ids: Sequence[EventId], records: Sequence[Record] | NotVisible
) -> tuple[Facts, ...]:
    """The facts of ``event_ids`` in their order, and behind them those of events that only the records know.

    An event is told by its record alone: a record without event id is a fact of its own, under its place.
    """
    told: dict[EventId, list[Record]] = defaultdict(list)
    for record in () if isinstance(records, NotVisible) else records:
        told[record.event_id].append(record)
    ids = tuple(dict.fromkeys(chain(event_ids, told)))
    alarms, outbox = _rows(shop, _ALARM, ids), _rows(shop, _OUTBOX, ids)
    histories = [_rows(shop, look, ids) for look in _HISTORY]
    marks, effects = _rows(consumers, _MARK, ids), _rows(consumers, _EFFECT, ids)
    return tuple(
        Facts(
            one,
            business=_first(alarms[one]),
            records=records if isinstance(records, NotVisible) else tuple(told[one]),
            outbox=_first(outbox[one]),
            history=tuple(sorted(chain.from_iterable(each[one] for each in histories), key=lambda row: row.at or 0.0)),
            marks=_by_consumer(marks[one]),
            effects=_by_consumer(effects[one]),
        )
        for one in ids
    )


def _rows(connection: Connection, look: _Look, ids: Sequence[EventId]) -> Mapping[EventId, list[Row]]:
    found: dict[EventId, list[Row]] = defaultdict(list)
    statement = text(look.sql).bindparams(bindparam("ids", expanding=True))
    for part in _parts(ids):
        for values in connection.execute(statement, {"ids": part}).mappings():
            columns = {name: _shown(value) for name, value in values.items()}
            found[EventId(str(values["event_id"]))].append(Row(look.table, columns, seconds(values[look.moment])))
    return found


def _parts(ids: Sequence[EventId]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield [str(one) for one in ids[start : start + _AT_ONCE]]


def _first(rows: Sequence[Row]) -> Row | None:
    return rows[0] if rows else None


def _by_consumer(rows: Sequence[Row]) -> Mapping[str, tuple[Row, ...]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.columns["consumer"] or ""].append(row)
    return {consumer: tuple(some) for consumer, some in found.items()}


def seconds(moment: Any) -> float | None:
    """A stored moment as seconds since 1970: drivers give it with a zone, without one (it is UTC), or as text."""
    if moment is None:
        return None
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return float((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="microseconds")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
