"""Statements on work rows that are named by key, under the fence of owner and token; a module for each kind of server.

Keys come sorted, so that two relays lock rows in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sqlalchemy import Connection

from ...errors import BadUrl
from ...ports import Parked, Sent, WorkKey


class Fence(NamedTuple):
    """Who may touch a row: the relay that claimed it, under the token of that very claim."""

    owner: str
    token: int


class WorkRows(Protocol):
    """What settling, renewing and moving need of a kind of server."""

    def remove(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> int:
        """Delete the ready rows that are still ours; returns how many were."""
        ...

    def ours(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> set[WorkKey]:
        """Lock the ready rows that are still ours and return their keys."""
        ...

    def give_back(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> int:
        """Return rows to the queue with this claim uncounted. The token stays, as the trace of who gave them back."""
        ...

    def given_back(self, connection: Connection, keys: Sequence[WorkKey], token: int) -> set[WorkKey]:
        """Which of these rows carry the trace of having been given back under this token."""
        ...

    def extend(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence, seconds: float) -> int:
        """Set the lease of rows that are still ours to ``seconds`` from now; returns how many were."""
        ...

    def add_receipts(self, connection: Connection, sent: Sequence[Sent], fence: Fence, *, again: bool) -> None:
        """Write receipts. ``again``: there may be older ones of the same deliveries, which are overwritten.

        (Else they raise IntegrityError. Asking for the conflict costs PostgreSQL half as much again.)
        """
        ...

    def with_receipt(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> set[WorkKey]:
        """Which of these rows have a receipt of this very claim."""
        ...

    def add_parked(self, connection: Connection, parked: Sequence[Parked]) -> None:
        """Write parked rows, overwriting what stands there under the same key."""
        ...

    def are_parked(self, connection: Connection, parked: Sequence[Parked]) -> set[WorkKey]:
        """Which of these stand parked exactly so."""
        ...


def work_rows(dialect: str) -> WorkRows:
    """The statements for SQLAlchemy's dialect name."""
    if dialect == "postgresql":
        from .postgres import PostgresRows

        return PostgresRows()
    if dialect in {"mysql", "mariadb"}:
        from .mysql import MysqlRows

        return MysqlRows()
    if dialect == "sqlite":
        from .sqlite import SqliteRows

        return SqliteRows()
    raise BadUrl(f"Pillarbox does not work with {dialect}.")
