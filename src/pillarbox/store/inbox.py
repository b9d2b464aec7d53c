"""The inbox mark: which events a consumer has already applied, decided by one insert and its primary key.

No read before the insert: ``SELECT … FOR UPDATE`` of a missing key takes a gap lock in two sessions at once, and both
inserts then deadlock. No affected-row counts of an upsert: SQLAlchemy sets CLIENT_FOUND_ROWS on MySQL.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from ..errors import InvalidEvent
from .write import styled

_INSERT: Final = "INSERT INTO inbox_event (consumer, event_id, applied_at) VALUES (?, ?, {now})"
# A violation would abort the whole transaction on PostgreSQL, so the conflict is declared instead.
_POSTGRESQL: Final = (
    _INSERT.format(now="clock_timestamp()") + " ON CONFLICT (consumer, event_id) DO NOTHING RETURNING 1"
)
_MYSQL: Final = _INSERT.format(now="UTC_TIMESTAMP(6)")
_SQLITE: Final = _INSERT.format(now="strftime('%Y-%m-%d %H:%M:%f', 'now')")

_DUPLICATE_ENTRY: Final = 1062
_SQLITE_PRIMARY_KEY: Final = 1555


def mark(connection: Connection, consumer: str, event_id: str) -> bool:
    """Record in the connection's transaction that ``consumer`` applies ``event_id``; False: it already has.

    Waits while another transaction holds the same mark uncommitted, and then tells its outcome. Only the conflict of
    exactly this primary key means "already"; every other error is raised as it is. An id or name that ends in a space
    raises InvalidEvent (PB-010): MySQL compares text without trailing spaces, so another id would count as this one.
    """
    if consumer.endswith(" ") or event_id.endswith(" "):
        raise InvalidEvent(f"The mark ({consumer!r}, {event_id!r}) ends in a space.", fix="Strip it, on every side.")
    name, style = connection.dialect.name, connection.dialect.paramstyle
    if name == "postgresql":
        return connection.exec_driver_sql(styled(_POSTGRESQL, style), (consumer, event_id)).first() is not None
    try:
        connection.exec_driver_sql(styled(_SQLITE if name == "sqlite" else _MYSQL, style), (consumer, event_id))
    except IntegrityError as error:
        if is_taken(error):
            return False
        raise
    return True


def is_marked(connection: Connection, consumer: str, event_id: str) -> bool:
    """Whether the connection's transaction sees the mark."""
    sql = styled("SELECT 1 FROM inbox_event WHERE consumer = ? AND event_id = ?", connection.dialect.paramstyle)
    return connection.exec_driver_sql(sql, (consumer, event_id)).first() is not None


def unmark(connection: Connection, consumer: str, event_id: str) -> None:
    """Take a mark back, whose transaction committed before the effect was complete."""
    sql = styled("DELETE FROM inbox_event WHERE consumer = ? AND event_id = ?", connection.dialect.paramstyle)
    connection.exec_driver_sql(sql, (consumer, event_id))


def is_taken(error: IntegrityError) -> bool:
    """Whether the error is the primary key of ``inbox_event`` and nothing else."""
    original = error.orig
    if original is None:
        return False
    code = getattr(original, "sqlite_errorcode", None)
    if code is not None:
        # A table made without WITHOUT ROWID reports SQLITE_CONSTRAINT_UNIQUE; the columns in the text tell which key.
        return code == _SQLITE_PRIMARY_KEY and "inbox_event.consumer, inbox_event.event_id" in str(original)
    text = str(original.args[1]) if len(original.args) > 1 else ""
    # "Duplicate entry … for key 'PRIMARY'", since MySQL 8.0.19 "… 'inbox_event.PRIMARY'"
    return original.args[:1] == (_DUPLICATE_ENTRY,) and text.endswith(("'PRIMARY'", "'inbox_event.PRIMARY'"))
