"""Notices a handler that ends the transaction which is not its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from ..errors import HandlerEndedTransaction
from ..store.drivers import driver_of


class TransactionGuard:
    """Watches one connection. While handlers run, a COMMIT is refused before it reaches the server.

    A rollback cannot be refused (a failed flush rolls back, too), so it is noted and reported when the handler returns.
    A statement that ended the transaction on the server (DDL on MySQL, a COMMIT sent as text) is noticed afterwards,
    where the driver tells. Savepoints are free to use.

    A statement that failed may have undone the whole transaction, even where the handler swallowed its error:
    PostgreSQL answers COMMIT by a silent rollback then, MySQL goes on after a deadlock in a new transaction.
    ``doubtful`` says that there was one.

    ``left_open``: SQLAlchemy believes that the transaction is over, on the server it goes on. ``ended_on_server``: the
    other way round; what was written before, the mark included, may stand committed.
    """

    def __init__(self, connection: Connection) -> None:
        self._watching = False
        self._ended: str | None = None
        self.left_open = False
        self.ended_on_server = False
        self._unfinished = 0  # statements that were sent and did not return
        self._connection = connection
        self._in_transaction = driver_of(connection).in_transaction
        self._failed = driver_of(connection).failed
        event.listen(connection, "commit", self._on_commit)
        event.listen(connection, "rollback", self._on_rollback)
        event.listen(connection, "before_cursor_execute", self._before_statement)
        event.listen(connection, "after_cursor_execute", self._on_statement)

    @contextmanager
    def watch(self, session: Session) -> Iterator[None]:
        """While this is open, the transaction belongs to the consumer."""
        self._watching, self._ended, self.ended_on_server, self._unfinished = True, None, False, 0
        event.listen(session, "before_commit", self._on_session_commit)
        try:
            yield
        finally:
            event.remove(session, "before_commit", self._on_session_commit)
            self._watching = False

    @property
    def in_statement(self) -> bool:
        """True while a statement is with the server; asked from another thread."""
        return self._unfinished > 0

    @property
    def doubtful(self) -> bool:
        """True when a statement failed since the watch began."""
        return self._unfinished > 0 or self._failed(self._connection)

    def check(self, handler: str) -> None:
        """Raise HandlerEndedTransaction (PB-043) when the transaction did not survive ``handler``."""
        if self._ended is not None:
            raise HandlerEndedTransaction(f"The handler {handler!r} {self._ended}.")

    def _on_session_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._refuse()

    def _on_commit(self, _connection: Connection) -> None:
        if self._watching:
            self.left_open = True
            self._refuse()

    def _on_rollback(self, _connection: Connection) -> None:
        if self._watching and self._ended is None:
            self._ended = "rolled back or closed the session (or caught a failed flush, which rolls back, too)"

    def _before_statement(self, *_statement: Any) -> None:
        self._unfinished += 1

    def _on_statement(self, connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        self._unfinished -= 1
        if self._watching and self._in_transaction(connection) is False:
            self.ended_on_server = True
            words = " ".join(statement.split()[:3])
            self._ended = f"ended the transaction by {words!r}; what was written before that may stand committed"
            raise HandlerEndedTransaction(f"A handler {self._ended}.")

    def _refuse(self) -> None:
        self._ended = "called commit()"
        raise HandlerEndedTransaction("A handler called commit() on the consumer's transaction.")
