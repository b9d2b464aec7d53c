"""The inbox mark: which events a consumer has already applied, decided by one insert and its primary key.

No read before the insert: ``SELECT … FOR UPDATE`` of a missing key takes a gap lock in two sessions at once, and both
inserts then deadlock. No affected-row counts of an upsert: SQLAlchemy sets CLIENT_FOUND_ROWS on MySQL.

==========  ===========================================  =========================================================
server      one mark                                     many marks
==========  ===========================================  =========================================================
PostgreSQL  INSERT … ON CONFLICT DO NOTHING RETURNING    the same, its ids in one array
MySQL       INSERT, refused by the primary key           one INSERT; when refused, SELECT what is there, and again
SQLite      INSERT, refused by the primary key           INSERT … ON CONFLICT DO NOTHING RETURNING
==========  ===========================================  =========================================================

PostgreSQL above READ COMMITTED: a mark that another transaction committed after our snapshot makes ON CONFLICT fail
with 40001. A plain INSERT in a savepoint is refused by the primary key instead, which tells the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from ..errors import InvalidEvent
from .failures import Fault, fault_of
from .write import styled

_INSERT: Final = "INSERT INTO inbox_event (consumer, event_id, applied_at) VALUES (?, ?, {now})"
# A violation would abort the whole transaction on PostgreSQL, so the conflict is declared instead.
_POSTGRESQL_PLAIN: Final = _INSERT.format(now="clock_timestamp()")
_POSTGRESQL: Final = _POSTGRESQL_PLAIN + " ON CONFLICT (consumer, event_id) DO NOTHING RETURNING 1"
_POSTGRESQL_MANY: Final = (
    "INSERT INTO inbox_event (consumer, event_id, applied_at)"
    " SELECT CAST(? AS varchar), one, clock_timestamp() FROM unnest(CAST(? AS varchar[])) AS one"
    " ON CONFLICT (consumer, event_id) DO NOTHING RETURNING event_id"
)
_MYSQL: Final = _INSERT.format(now="UTC_TIMESTAMP(6)")
_SQLITE: Final = _INSERT.format(now="strftime('%Y-%m-%d %H:%M:%f', 'now')")
_FOUND: Final = "SELECT event_id FROM inbox_event WHERE consumer = ? AND event_id IN ({marks})"

_DUPLICATE_ENTRY: Final = 1062
_SQLITE_PRIMARY_KEY: Final = 1555
_UNIQUE_VIOLATION: Final = "23505"
_POSTGRESQL_KEY: Final = "inbox_event_pkey"

ROWS: Final = 400
"""Marks of one statement: with two parameters each below the 999 of old SQLite, and far below any packet limit."""

_TRIES: Final = 3
"""How often a batch is inserted as a whole on MySQL before its marks are made one by one."""


def mark(connection: Connection, consumer: str, event_id: str) -> bool:
    """Record in the connection's transaction that ``consumer`` applies ``event_id``; False: it already has.

    Waits while another transaction holds the same mark uncommitted, and then tells its outcome. Only the conflict of
    exactly this primary key means "already"; every other error is raised as it is. An id or name that ends in a space
    raises InvalidEvent (PB-010): MySQL compares text without trailing spaces, so another id would count as this one.
    """
    _check(consumer, (event_id,))
    if connection.dialect.name == "postgresql":
        if _keeps_its_snapshot(connection):
            return _mark_in_savepoint(connection, consumer, event_id)
        sql = styled(_POSTGRESQL, connection.dialect.paramstyle)
        return connection.exec_driver_sql(sql, (consumer, event_id)).first() is not None
    sql = styled(_SQLITE if connection.dialect.name == "sqlite" else _MYSQL, connection.dialect.paramstyle)
    return _unless_taken(connection, sql, (consumer, event_id))


def mark_many(connection: Connection, consumer: str, event_ids: Iterable[str]) -> set[str]:
    """Record many marks in the connection's transaction; returns the ids that are new to ``consumer``.

    Waits, tells and refuses like :func:`mark`; an id that is given twice counts once. The marks are made in the order
    of their ids, so that two consumers with the same events wait for each other instead of deadlocking.
    """
    ids = sorted(set(event_ids))
    _check(consumer, ids)
    insert = {"postgresql": _many_on_postgresql, "sqlite": _many_on_sqlite}.get(connection.dialect.name, _many_on_mysql)
    new: set[str] = set()
    for start in range(0, len(ids), ROWS):
        new |= insert(connection, consumer, ids[start : start + ROWS])
    return new


def is_marked(connection: Connection, consumer: str, event_id: str) -> bool:
    """Whether the connection's transaction sees the mark."""
    return bool(marked(connection, consumer, (event_id,)))


def marked(connection: Connection, consumer: str, event_ids: Sequence[str]) -> set[str]:
    """Which of the marks the connection's transaction sees, at most ROWS of them."""
    if not event_ids:
        return set()
    sql = styled(_FOUND.format(marks=", ".join("?" * len(event_ids))), connection.dialect.paramstyle)
    return {row[0] for row in connection.exec_driver_sql(sql, (consumer, *event_ids))}


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
    if _postgresql_key(original) is not None:
        return _postgresql_key(original) == _POSTGRESQL_KEY
    text = str(original.args[1]) if len(original.args) > 1 else ""
    # "Duplicate entry … for key 'PRIMARY'", since MySQL 8.0.19 "… 'inbox_event.PRIMARY'"
    return original.args[:1] == (_DUPLICATE_ENTRY,) and text.endswith(("'PRIMARY'", "'inbox_event.PRIMARY'"))


def _postgresql_key(original: BaseException) -> str | None:
    """The violated constraint, as each driver names it: psycopg and psycopg2 in ``diag``, asyncpg in the cause."""
    if (getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)) != _UNIQUE_VIOLATION:
        return None
    told = getattr(original, "diag", None) or original.__cause__
    return str(getattr(told, "constraint_name", None) or "")


def _check(consumer: str, event_ids: Iterable[str]) -> None:
    for one in event_ids:
        if consumer.endswith(" ") or one.endswith(" "):
            raise InvalidEvent(f"The mark ({consumer!r}, {one!r}) ends in a space.", fix="Strip it, on every side.")


def _keeps_its_snapshot(connection: Connection) -> bool:
    """REPEATABLE READ or SERIALIZABLE, by option or by default; a SET TRANSACTION sent as text is not noticed."""
    level = connection.get_execution_options().get("isolation_level")
    level = level or getattr(connection.dialect, "_on_connect_isolation_level", None)
    return (level or connection.default_isolation_level) in ("REPEATABLE READ", "SERIALIZABLE")


def _mark_in_savepoint(connection: Connection, consumer: str, event_id: str) -> bool:
    sql = styled(_POSTGRESQL_PLAIN, connection.dialect.paramstyle)
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(sql, (consumer, event_id))
    except IntegrityError as error:
        if is_taken(error):
            return False
        raise
    return True


def _unless_taken(connection: Connection, sql: str, parameters: tuple[str, ...]) -> bool:
    """Run the insert; False when its primary key was taken, which undoes the statement and nothing else."""
    try:
        connection.exec_driver_sql(sql, parameters)
    except IntegrityError as error:
        if is_taken(error):
            return False
        raise
    return True


# Many at once -----------------------------------------------------------------------------------------------------


def _many_on_postgresql(connection: Connection, consumer: str, ids: list[str]) -> set[str]:
    sql = styled(_POSTGRESQL_MANY, connection.dialect.paramstyle)
    if not _keeps_its_snapshot(connection):
        return {row[0] for row in connection.exec_driver_sql(sql, (consumer, ids))}
    try:
        with connection.begin_nested():
            return {row[0] for row in connection.exec_driver_sql(sql, (consumer, ids))}
    except DBAPIError as error:
        if fault_of(error) is not Fault.BUSY:
            raise
    return _one_by_one(connection, consumer, ids)  # marks that are younger than our snapshot


def _many_on_sqlite(connection: Connection, consumer: str, ids: list[str]) -> set[str]:
    head, row = _SQLITE.split(" VALUES ")
    conflict = " ON CONFLICT (consumer, event_id) DO NOTHING RETURNING event_id"
    sql = f"{head} VALUES {', '.join([row] * len(ids))}{conflict}"
    parameters = tuple(value for one in ids for value in (consumer, one))
    return {row[0] for row in connection.exec_driver_sql(styled(sql, connection.dialect.paramstyle), parameters)}


def _many_on_mysql(connection: Connection, consumer: str, ids: list[str]) -> set[str]:
    """Reads without locks: under READ COMMITTED they see what the insert ran into. A locking read could walk, and wait
    for, rows of this consumer that have nothing to do with the batch. What is younger than a snapshot of REPEATABLE
    READ is found one by one."""
    head, row = _MYSQL.split(" VALUES ")
    style = connection.dialect.paramstyle
    for _ in range(_TRIES):
        sql = f"{head} VALUES {', '.join([row] * len(ids))}"
        parameters = tuple(value for one in ids for value in (consumer, one))
        if _unless_taken(connection, styled(sql, style), parameters):
            return set(ids)
        there = marked(connection, consumer, ids)
        ids = [one for one in ids if one not in there]
        if not ids:
            return set()
        if not there:
            break
    return _one_by_one(connection, consumer, ids)


def _one_by_one(connection: Connection, consumer: str, ids: list[str]) -> set[str]:
    return {one for one in ids if mark(connection, consumer, one)}
