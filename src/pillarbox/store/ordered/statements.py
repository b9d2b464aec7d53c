"""What settling needs of a kind of server: statements on many rows named by key. A module for each kind.

Keys come sorted, so that everybody locks rows in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from sqlalchemy import Connection

from ...errors import BadUrl
from ...ports import Aside, Hold, Progress, Sent
from .reading import Spans


class Keyed(NamedTuple):
    """A table and the columns of its primary key."""

    table: str
    columns: tuple[str, ...]


READY: Final = Keyed("outbox_ready", ("partition_no", "id", "dest"))
PARKED: Final = Keyed("outbox_parked", ("partition_no", "lane", "id", "dest"))
LANES: Final = Keyed("outbox_lane", ("partition_no", "lane", "target"))

Key = tuple[int, ...]


Receipt = tuple[int, int, int, int | None, int | None]
"""A row of outbox_receipt, as far as rows differ: id, dest, token, broker partition and offset."""


class Renewal(NamedTuple):
    """Whose partitions, and for how many seconds from now their leases last."""

    owner: str
    lease: float


class Statements(Spans, Protocol):
    """One kind of server."""

    def advance(self, connection: Connection, renewal: Renewal, progress: Sequence[Progress]) -> int:
        """Write the progress and renew the leases of those partitions that are still ours; returns how many are."""
        ...

    def find(self, connection: Connection, keyed: Keyed, keys: Sequence[Key]) -> set[Key]:
        """Which of these rows there are; they stay locked until the transaction ends."""
        ...

    def delete(self, connection: Connection, keyed: Keyed, keys: Sequence[Key]) -> int:
        """Delete the rows; returns how many there were."""
        ...

    def add_receipts(self, connection: Connection, relay: str, receipts: Sequence[Receipt], *, again: bool) -> None:
        """Write receipts. ``again``: over older ones, which else raise IntegrityError."""
        ...

    def park(self, connection: Connection, rows: Sequence[Aside]) -> None:
        """Write parked rows, over what stands there under the same key."""
        ...

    def hold(self, connection: Connection, holds: Sequence[Hold]) -> None:
        """Write or replace holds; ``since`` stays what it was."""
        ...

    def settle_sent(
        self, connection: Connection, renewal: Renewal, progress: Sequence[Progress], sent: Sequence[Sent]
    ) -> bool:
        """All of a round in which everything was sent, in one statement that commits by itself.

        False: this server cannot. An error of SQLAlchemy when anything was not as expected: then nothing is written.
        """
        ...


def statements(dialect: str) -> Statements:
    """The statements for SQLAlchemy's dialect name."""
    if dialect == "postgresql":
        from .postgres import PostgresStatements

        return PostgresStatements()
    if dialect in {"mysql", "mariadb"}:
        from .mysql import MysqlStatements

        return MysqlStatements()
    if dialect == "sqlite":
        from .sqlite import SqliteStatements

        return SqliteStatements()
    raise BadUrl(f"Pillarbox does not work with {dialect}.")
