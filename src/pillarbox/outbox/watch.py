"""Listeners on an engine that add: they keep the ledger, and refuse a commit that would tell half of the story.

They are set once for an engine, at its first outbox, and stay: a few attribute look-ups for each transaction. Their
state is in ``Connection.info``, so they hold nothing of an Outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Engine, event

from .. import faultpoints
from ..store import pending
from ..store.drivers import DRIVERS, driver_of
from .ledger import close_ledger, find, open_ledger, own

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
    try:
        _prepare(connection)
    except BaseException:
        _rollback(connection)
        connection.dialect.do_rollback(connection.connection)
        raise


def _prepare(connection: Connection, *_xid: object) -> None:
    """Before the commit, or before its first phase: SQLAlchemy rolls that back itself when refused."""
    ledger = find(connection)
    if ledger is not None and ledger.is_open and not _has_transaction(connection):
        ledger.end("A statement before this commit", connection)
    refusal = pending.refusal(connection.info) or (ledger.refusal() if ledger is not None else None)
    if refusal is not None:
        raise refusal
    if ledger is not None and ledger.events:
        faultpoints.reach("outbox.before-commit")
        connection.info[_COMMITTED] = True
    close_ledger(connection)


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


def _checkin(_dbapi_connection: Any, record: Any) -> None:
    _reached_after_commit(record.info)


def _reached_after_commit(info: dict[str, Any]) -> None:
    """SQLAlchemy has no event after a connection's commit: the next thing that happens to it tells."""
    if info.pop(_COMMITTED, None):
        faultpoints.reach("outbox.after-commit")


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
    "checkin": _checkin,
}
