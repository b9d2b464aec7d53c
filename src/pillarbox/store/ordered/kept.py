"""One connection that is kept: a read then costs exactly one statement, without BEGIN, ROLLBACK or a pool's reset."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Engine, exc

from ..failures import Fault, fault_of
from ..transactions import Transactions

log = logging.getLogger("pillarbox.store")
T = TypeVar("T")


class Database(Protocol):
    """How a store reaches its database; :class:`..transactions.Transactions` is one, too."""

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` in a transaction and commit. It may run again, even after a commit whose answer was lost."""
        ...

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work``, which changes nothing, or whose one statement commits by itself."""
        ...

    def close(self) -> None:
        """Let go of what is kept."""
        ...


class KeptConnection:
    """A Database for a server: autocommit, transactions begun and ended explicitly. For one thread.

    The rules for errors are those of :class:`..transactions.Transactions`. Isolation is READ COMMITTED.
    """

    def __init__(self, engine: Engine, rules: Transactions) -> None:
        self._engine = engine
        self._rules = rules
        self._connection: Connection | None = None
        # Said each time: the server's default may be another one, and the engine's level is for implicit transactions.
        postgres = engine.dialect.name == "postgresql"
        self._begin = "BEGIN ISOLATION LEVEL READ COMMITTED" if postgres else "BEGIN"

    def read(self, work: Callable[[Connection], T]) -> T:
        """See Database.read."""
        return self._rules.repeat(lambda: self._attempt(work))

    def write(self, work: Callable[[Connection], T]) -> T:
        """See Database.write."""
        return self._rules.repeat(lambda: self._attempt(self._in_transaction(work)))

    def close(self) -> None:
        """Return the connection to its pool, which finds out if it is dead."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except (exc.SQLAlchemyError, OSError) as error:
            log.debug("the connection was lost before it was closed: %s", error)

    def _attempt(self, work: Callable[[Connection], T]) -> T:
        try:
            return work(self._open())
        except BaseException as error:
            if not _still_fit(error):
                self._drop()
            raise

    def _in_transaction(self, work: Callable[[Connection], T]) -> Callable[[Connection], T]:
        def run(connection: Connection) -> T:
            connection.exec_driver_sql(self._begin)
            try:
                result = work(connection)
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                self._undo(connection)
                raise
            return result

        return run

    def _undo(self, connection: Connection) -> None:
        try:
            connection.exec_driver_sql("ROLLBACK")
        except (exc.SQLAlchemyError, OSError) as error:
            log.debug("connection dropped, it could not be rolled back: %s", error)
            self._drop()

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.invalidate()
            connection.close()
        except (exc.SQLAlchemyError, OSError) as error:
            log.debug("a lost connection could not be closed: %s", error)


def _still_fit(error: BaseException) -> bool:
    """Whether the connection may be used after this error: not when it is lost, leads to a replica, or broke off."""
    return isinstance(error, Exception) and fault_of(error) not in (Fault.LOST, Fault.READ_ONLY)
