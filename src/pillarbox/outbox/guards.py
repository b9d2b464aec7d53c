"""The write, behind its guards: each refuses what would store an event apart from its business row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from ..errors import InvalidEvent, NoTransaction, PayloadTooLarge, PillarboxError, SavepointTrap, SchemaMismatch
from ..policy.lanes import HASH_NAME
from ..store.drivers import Driver, begins_by_itself, driver_of, is_autocommit
from ..store.engines import check_schema
from ..store.failures import Fault, connect_error, fault_of
from ..store.naming import Naming
from ..store.write import OverCore, Row, insert_with, is_past
from .ledger import Ledger, ledger_of

_PACKET_TOO_LARGE = 1153


class Limits(NamedTuple):
    """Bytes of one payload; events, and bytes of payloads and headers, of one transaction."""

    max_payload_bytes: int
    max_events: int
    max_bytes: int


class Tables(NamedTuple):
    """What is known of an engine once its tables were looked at.

    ``naming`` is that of the outbox that writes.
    ``narrow_text``: the connection speaks MySQL's three-byte utf8, which may silently turn an emoji into ``????``.
    """

    partitions: int
    narrow_text: bool
    naming: Naming


def read_tables(connection: Connection, naming: Naming) -> Tables:
    """Check the tables, once for an engine: TablesMissing (PB-006), SchemaMismatch (PB-007)."""
    check_schema(connection, naming=naming)
    sql = naming("SELECT partitions, hash_name, mode FROM outbox_meta WHERE one = 1")
    found = connection.execute(text(sql)).one()
    if found.hash_name != HASH_NAME or found.mode != "polling":
        raise SchemaMismatch(
            f"The outbox uses the hash {found.hash_name!r} in mode {found.mode!r}; this release writes "
            f"{HASH_NAME!r} in mode 'polling'."
        )
    return Tables(found.partitions, _has_narrow_text(connection), naming)


def _has_narrow_text(connection: Connection) -> bool:
    if connection.dialect.name not in ("mysql", "mariadb"):
        return False
    return connection.exec_driver_sql("SELECT @@character_set_client").scalar_one() in ("utf8", "utf8mb3")


def write(
    connection: Connection, rows: Sequence[Row], tables: Tables, limits: Limits, *, perhaps_past: bool = False
) -> None:
    """Insert the rows in the connection's transaction, or say why not.

    ``perhaps_past``: rows that are to go later may be due already, which the database's clock decides.
    """
    if tables.narrow_text:
        _check_narrow(rows)
    if not connection.in_transaction():
        connection.begin()  # what the first statement would do: the ledger opens with the transaction
    ledger, driver = ledger_of(connection), driver_of(connection)
    _check_transaction(connection, driver, ledger)
    size = sum(len(row.message.payload) + len((row.message.headers or "").encode()) for row in rows)
    ledger.make_room(len(rows), size, max_events=limits.max_events, max_bytes=limits.max_bytes)
    execute, begun = OverCore(connection, tables.naming), driver.in_transaction(connection)
    try:
        if perhaps_past:
            rows = _due_or_later(execute, connection.dialect.name, rows)
        insert_with(execute, connection.dialect.name, rows)
    except BaseException as error:
        lost = bool(begun) and not connection.invalidated and not driver.in_transaction(connection)
        ledger.torn = ledger.torn or lost or _is_broken(connection, execute)
        explained = _explained(error, connection)
        if explained is None:
            raise
        raise explained from error
    ledger.record([row.message.event_id for row in rows], size, tables.naming)


def _due_or_later(execute: OverCore, dialect_name: str, rows: Sequence[Row]) -> Sequence[Row]:
    due = next((row.later.due for row in rows if row.later is not None), None)
    if due is None or not is_past(execute, dialect_name, due):
        return rows
    return [row._replace(later=None) for row in rows]


def _check_transaction(connection: Connection, driver: Driver, ledger: Ledger) -> None:
    if is_autocommit(connection):
        raise NoTransaction("The connection is in AUTOCOMMIT: the event would be committed alone, at once.")
    if connection.dialect.name == "sqlite" and _is_trapped(connection, ledger):
        raise SavepointTrap(
            "The SAVEPOINT of this session is no part of a transaction: its release would commit the event."
        )
    if ledger.is_open and driver.in_transaction(connection) is False:
        ledger.end("A statement since the last add", connection)
    refusal = ledger.refusal()
    if refusal is not None:
        raise refusal


def _is_trapped(connection: Connection, ledger: Ledger) -> bool:
    """Where the begin was not seen, any SAVEPOINT may have come before it."""
    unseen = not ledger.watched_from_begin and connection.in_nested_transaction()
    return ledger.loose_savepoint or (unseen and begins_by_itself(connection))


def _is_broken(connection: Connection, execute: OverCore) -> bool:
    """After a failed add. PostgreSQL gives up the transaction, and its COMMIT would roll back without a word. On MySQL
    and SQLite only the failed statement is undone, and the one before it stands."""
    return connection.dialect.name == "postgresql" or execute.statements > 0


def _check_narrow(rows: Sequence[Row]) -> None:
    for row in rows:
        for text_of in (*row.message, row.more_destinations):
            if isinstance(text_of, str) and text_of and max(text_of) > "\uffff":
                raise _unspeakable(repr(text_of[:40]))


def _unspeakable(what: str) -> InvalidEvent:
    return InvalidEvent(
        f"The database connection's character set cannot carry a name, key or header of this event: {what}.",
        fix="Add ?charset=utf8mb4 to the engine's URL.",
    )


def _explained(error: BaseException, connection: Connection) -> PillarboxError | None:
    """Conflicts (deadlock, lock time-out) stay SQLAlchemy's own errors: callers' retries look for these."""
    if isinstance(error, UnicodeEncodeError):
        return _unspeakable(str(error))
    if not isinstance(error, DBAPIError) or fault_of(error) is Fault.BUSY:
        return None
    if isinstance(error, IntegrityError) and "event_id" in str(error.orig):
        return InvalidEvent(
            "The outbox already holds an event with this id.", fix="Leave the id out, or use a new one."
        )
    if "outbox_ready_partition" in str(error.orig):
        return SchemaMismatch(
            "The number of partitions of this outbox was changed while this process runs.", fix="Restart it."
        )
    if error.orig is not None and error.orig.args[:1] == (_PACKET_TOO_LARGE,):
        return PayloadTooLarge(
            "The server refuses a statement of this size.", fix="Raise max_allowed_packet, or send a reference."
        )
    return None if fault_of(error) is Fault.BUG else connect_error(error, connection.engine.url)
