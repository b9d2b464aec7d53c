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

    ``left_open``: SQLAlchemy believes that the transaction is over, on the server it goes on. ``ended_on_server``: the
    other way round; what was written before, the mark included, may stand committed.
    """

    def __init__(self, connection: Connection) -> None:
        self._watching = False
        self._ended: str | None = None
        self.left_open = False
        self.ended_on_server = False
        self._in_transaction = driver_of(connection).in_transaction
        event.listen(connection, "commit", self._on_commit)
        event.listen(connection, "rollback", self._on_rollback)
        event.listen(connection, "after_cursor_execute", self._on_statement)

    @contextmanager
    def watch(self, session: Session) -> Iterator[None]:
        """While this is open, the transaction belongs to the consumer."""
        self._watching, self._ended, self.ended_on_server = True, None, False
        event.listen(session, "before_commit", self._on_session_commit)
        try:
            yield
        finally:
            event.remove(session, "before_commit", self._on_session_commit)
            self._watching = False

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

    def _on_statement(self, connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        if self._watching and self._in_transaction(connection) is False:
            self.ended_on_server = True
            words = " ".join(statement.split()[:3])
            self._ended = f"ended the transaction by {words!r}; what was written before that may stand committed"
            raise HandlerEndedTransaction(f"A handler {self._ended}.")

    def _refuse(self) -> None:
        self._ended = "called commit()"
        raise HandlerEndedTransaction("A handler called commit() on the consumer's transaction.")
