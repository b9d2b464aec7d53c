"""Notices a handler that ends the transaction which is not its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from ..errors import HandlerEndedTransaction


class TransactionGuard:
    """Watches one connection. While handlers run, a COMMIT is refused before it reaches the server.

    A rollback cannot be refused (a failed flush rolls back, too), so it is noted and reported when the handler returns.
    Savepoints are free to use. What is not seen: a COMMIT sent as text, past SQLAlchemy's transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self._watching = False
        self._ended: str | None = None
        self.left_open = False
        event.listen(connection, "commit", self._on_commit)
        event.listen(connection, "rollback", self._on_rollback)

    @contextmanager
    def watch(self, session: Session) -> Iterator[None]:
        """While this is open, the transaction belongs to the consumer."""
        self._watching, self._ended = True, None
        event.listen(session, "before_commit", self._on_session_commit)
        try:
            yield
        finally:
            event.remove(session, "before_commit", self._on_session_commit)
            self._watching = False

    def check(self, handler: str) -> None:
        """Raise HandlerEndedTransaction (PB-043) when the transaction did not survive ``handler``."""
        if self._ended is not None:
            raise HandlerEndedTransaction(f"The handler {handler!r} {self._ended}; nothing of this event was kept.")

    def _on_session_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._refuse()

    def _on_commit(self, _connection: Connection) -> None:
        if self._watching:
            # SQLAlchemy takes a commit that raises for the end of the transaction, on the server it goes on.
            self.left_open = True
            self._refuse()

    def _on_rollback(self, _connection: Connection) -> None:
        if self._watching and self._ended is None:
            self._ended = "rolled back or closed the session (or caught a failed flush, which rolls back, too)"

    def _refuse(self) -> None:
        self._ended = "called commit()"
        raise HandlerEndedTransaction("A handler called commit() on the consumer's transaction.")
