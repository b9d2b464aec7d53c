"""The consumer's own database connection: one at a time, one transaction per event."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from ..errors import BadConsumer, HandlerTimedOut
from ..store.drivers import driver_of
from ..store.engines import BEGIN_OPTION, check_schema
from ..store.failures import connect_error
from .cancelling import cancel_statement
from .guard import TransactionGuard
from .handlers import Handler
from .received import Received
from .watch import HandlerWatch, ThreadInterrupt

_log = logging.getLogger("pillarbox.consume")


class InboxDatabase:
    """Keeps one connection of ``engine`` as long as it works, so that its isolation level is set once, not per event.

    READ COMMITTED: under MySQL's default, REPEATABLE READ, marks would lock gaps and consumers wait for one another.
    """

    def __init__(self, engine: Engine, watch: HandlerWatch | None = None) -> None:
        self.engine = engine
        self._watch = watch
        self._connection: Connection | None = None
        self._guard: TransactionGuard | None = None
        self._distrusted = False

    @property
    def guard(self) -> TransactionGuard:
        """The guard of the connection in use."""
        assert self._guard is not None, "begin() comes first"
        return self._guard

    @property
    def lost(self) -> bool:
        """True when the connection in use broke."""
        return self._connection is not None and self._connection.invalidated

    def check(self) -> None:
        """Raise TablesMissing (PB-006), or why the database cannot be reached (PB-004, PB-008)."""
        try:
            connection = self._connect()
            looking = self.engine.dialect.name == "sqlite"
            if looking:  # without the write lock, for which a busy database could let it wait until it gives up
                connection.execution_options(**{BEGIN_OPTION: "DEFERRED"})
            check_schema(connection, part="inbox")
            if driver_of(connection).commits_alone(connection):
                raise BadConsumer(
                    "The consumer's engine is in AUTOCOMMIT: mark and handler's writes would not commit together.",
                    fix="Give the consumer an engine without isolation_level='AUTOCOMMIT'.",
                )
            connection.rollback()
            if looking:
                self.close()
        except DBAPIError as error:
            self.close()
            raise connect_error(error, self.engine.url) from error

    def begin(self) -> Session:
        """A session on the connection, no statement sent yet. Raises SQLAlchemy's errors when none can be opened."""
        return self._make_session(self._connect())

    def _make_session(self, connection: Connection) -> Session:
        # Closed for good at the end: what a handler left running would else write into the next event's transaction.
        return Session(bind=connection, close_resets_only=False)

    def call(self, handler: Handler, events: Sequence[Received[Any]], session: Session) -> None:
        """Run a handler in the session's transaction; HandlerTimedOut (PB-049) when it is under watch and too slow."""
        if self._watch is None:
            self._call(handler, events, session)
            return
        try:
            self._watch.run(handler.name, lambda: self._call(handler, events, session), ThreadInterrupt(self._cancel))
        except HandlerTimedOut:
            self.distrust()  # who knows where it was interrupted
            raise

    def _call(self, handler: Handler, events: Sequence[Received[Any]], session: Session) -> None:
        answer = handler.call(events, session, session.connection)
        if hasattr(answer, "__await__"):
            raise TypeError(f"The handler {handler.name!r} returned an awaitable, which nobody will await.")

    def _cancel(self) -> None:
        if self._connection is not None and self.guard.in_statement:
            cancel_statement(self._connection)

    def end(self, session: Session) -> None:
        """Roll back what was not committed, and forget the connection when it can no longer be trusted."""
        connection = self._connection
        try:
            session.close()
            if connection is not None and not connection.closed:
                if self.guard.left_open and not connection.invalidated:
                    connection.connection.rollback()
                connection.rollback()
        except SQLAlchemyError as error:
            _log.debug("rolling back failed: %s", error)
            self._distrusted = True
        if self._distrusted or self.guard.left_open or connection is None or connection.closed or self.lost:
            self.close()

    def distrust(self, *, elsewhere: bool = False) -> None:
        """Take a new connection for the next event; ``elsewhere``: the same address may lead to another server now."""
        self._distrusted = True
        if elsewhere:
            self.engine.dispose()

    def close(self) -> None:
        """Give the connection back to its pool."""
        connection, self._connection, self._guard, self._distrusted = self._connection, None, None, False
        if connection is None or connection.closed:
            return
        try:
            connection.close()
        except SQLAlchemyError as error:
            _log.debug("closing a database connection failed: %s", error)

    def _connect(self) -> Connection:
        if self._connection is not None and not self._connection.closed and not self._connection.invalidated:
            return self._connection
        self.close()
        connection = self.engine.connect()
        try:
            if self.engine.dialect.name != "sqlite":  # which has one level only
                connection = connection.execution_options(isolation_level="READ COMMITTED")
        except self.engine.dialect.loaded_dbapi.Error as error:
            # A pooled connection that broke meanwhile: SQLAlchemy sets the level below where it translates errors.
            connection.invalidate(error)
            connection.close()
            raise OperationalError("(setting the isolation level)", None, error, connection_invalidated=True) from error
        except BaseException:
            connection.close()
            raise
        self._connection, self._guard = connection, TransactionGuard(connection)
        return connection
