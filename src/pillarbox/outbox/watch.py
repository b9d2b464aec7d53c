"""Listeners on an engine that add: they keep the ledger, and refuse a commit that would tell half of the story.

They are set once for an engine, at its first outbox, and stay: a few attribute look-ups for each transaction. Their
state is in ``Connection.info``, so they hold nothing of an Outbox.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError

from .. import faultpoints
from ..errors import AddFailed, PillarboxError
from ..store import pending
from ..store.drivers import DRIVERS, driver_of
from ..store.failures import Fault, fault_of
from ..store.wakeup import notify
from .ledger import Ledger, close_ledger, find, open_ledger, own

log = logging.getLogger("pillarbox.outbox")

_COMMITTED: Final = "pillarbox.committed"


def watch(engine: Engine) -> None:
    """Listen to the engine; a second call does nothing. Copies made by ``execution_options`` are heard, too."""
    while hasattr(engine, "_proxied"):
        engine = engine._proxied
    if event.contains(engine, "begin", _begin):
        return
    for name, listener in _LISTENERS.items():
        event.listen(engine, name, listener)
    if engine.dialect.name in ("mysql", "mariadb") and engine.dialect.driver in DRIVERS:
        event.listen(engine, "after_cursor_execute", _statement)


def _begin(connection: Connection, *_xid: object) -> None:
    _reached_after_commit(connection.info)
    open_ledger(connection)


def _commit(connection: Connection) -> None:
    """Before the commit. A refusal rolls back first: the DBAPI connection must not carry half a transaction on."""
    ledger = find(connection)
    try:
        _prepare(connection)
        if ledger is not None and ledger.events:
            for channel in sorted(ledger.channels):
                notify(connection, channel)  # not in two phases: PostgreSQL prepares none that has notified
    except BaseException:
        _rollback(connection)
        connection.dialect.do_rollback(connection.connection)
        raise


def _prepare(connection: Connection, *_xid: object) -> None:
    """Before the commit, or before its first phase: SQLAlchemy rolls that back itself when refused."""
    ledger = find(connection)
    if ledger is not None and ledger.is_open and not _has_transaction(connection):
        ledger.end("A statement before this commit", connection)
    if ledger is not None and ledger.is_open and ledger.shaken:
        _check_standing(connection, ledger)
    refusal = pending.refusal(connection.info) or (ledger.refusal() if ledger is not None else None)
    if refusal is not None:
        raise refusal
    if ledger is not None and ledger.events:
        faultpoints.reach("outbox.before-commit")
        connection.info[_COMMITTED] = tuple(ledger.wakes)
    close_ledger(connection)


def _check_standing(connection: Connection, ledger: Ledger) -> None:
    """After an error that the caller swallowed: are the events still there?"""
    try:
        lost = len(ledger.events) - len(ledger.standing(connection))
    except DBAPIError:  # PostgreSQL refuses everything but the end of the transaction, and makes COMMIT a ROLLBACK
        lost = len(ledger.events)
    if lost:
        raise AddFailed(
            f"A statement failed in this transaction and its error was swallowed; the server has rolled back {lost} "
            "event(s) and what was written beside them.",
            fix="Let that error end the transaction, or wrap the statement in session.begin_nested().",
        )


def _error(context: ExceptionContext) -> None:
    """Note an error after which the server may have ended the transaction without telling SQLAlchemy: on PostgreSQL any
    that the server sent, on MySQL a deadlock."""
    connection, error = context.connection, context.original_exception
    ledger = None if connection is None else find(connection)
    if ledger is None:
        return
    sent = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    ledger.shaken |= fault_of(error) is Fault.BUSY or (context.dialect.name == "postgresql" and sent is not None)


def _rollback(connection: Connection, *_xid: object) -> None:
    if not (connection.closed or connection.invalidated):
        pending.forget(connection.info)
        connection.info.pop(_COMMITTED, None)
    close_ledger(connection)


def _savepoint(connection: Connection, _name: str | None) -> None:
    ledger = find(connection)
    if ledger is not None:
        # SQLite's driver does not begin for a SAVEPOINT: alone, it is a transaction that its RELEASE commits.
        if connection.dialect.name == "sqlite" and not _has_transaction(connection):
            ledger.loose_savepoint = True
        ledger.savepoint()


def _rollback_savepoint(connection: Connection, _name: str, _context: None) -> None:
    ledger = find(connection)
    if ledger is not None:
        ledger.roll_back_to_savepoint()


def _release_savepoint(connection: Connection, _name: str, _context: None) -> None:
    ledger = find(connection)
    if ledger is not None:
        ledger.release()


def _statement(connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
    """MySQL: DDL and other statements commit implicitly; the flag in the answer tells, whatever the statement was."""
    ledger = find(connection)
    if ledger is None or not ledger.is_open or _has_transaction(connection):
        return
    ledger.end(" ".join(statement.split()[:2]), connection)
    refusal = ledger.refusal()
    if refusal is not None:
        raise refusal


def _has_transaction(connection: Connection) -> bool:
    """As far as the driver tells."""
    return driver_of(connection).in_transaction(connection) is not False


def _connect(_dbapi_connection: Any, record: Any) -> None:
    own(record.info)


def _reset(_dbapi_connection: Any, record: Any, _state: Any) -> None:
    _reached_after_commit(record.info)  # a round trip earlier than _checkin


def _checkin(_dbapi_connection: Any, record: Any) -> None:
    pending.forget(record.info)  # without a begin there was no rollback, and the next user is another one
    _reached_after_commit(record.info)


def _reached_after_commit(info: dict[str, Any]) -> None:
    """SQLAlchemy has no event after a connection's commit: the next thing that happens to it tells."""
    wakes: tuple[Callable[[], None], ...] | None = info.pop(_COMMITTED, None)
    if wakes is None:
        return
    faultpoints.reach("outbox.after-commit")
    for wake in wakes:
        try:
            wake()
        except PillarboxError as error:
            log.error("a nudge after the commit was refused: %s", error)
        except Exception:  # the commit stands, and polling finds what it wrote
            log.exception("a nudge after the commit failed")


_LISTENERS: Final[Mapping[str, Callable[..., None]]] = {
    "begin": _begin,
    "begin_twophase": _begin,
    "commit": _commit,
    "prepare_twophase": _prepare,
    "rollback": _rollback,
    "rollback_twophase": _rollback,
    "savepoint": _savepoint,
    "rollback_savepoint": _rollback_savepoint,
    "release_savepoint": _release_savepoint,
    "connect": _connect,
    "reset": _reset,
    "checkin": _checkin,
    "handle_error": _error,
}
