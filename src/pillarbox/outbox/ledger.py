"""What was added in a connection's current transaction: the count, the ids, and whether it can still commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from ..errors import AddFailed, ImplicitCommit, PillarboxError, TransactionTooLarge, UsedAfterFork
from ..store.naming import PLAIN, Naming
from ..store.write import OverCore, standing

_LEDGER: Final = "pillarbox.ledger"
_PROCESS: Final = "pillarbox.process"


class _Savepoint(NamedTuple):
    events: int
    size: int
    torn: bool


@dataclass(slots=True)
class Ledger:
    """One per transaction, kept in ``Connection.info``, which belongs to the DBAPI connection.

    ``watched_from_begin`` False: the first add on this engine came when the transaction was already under way.
    ``torn``: an add failed after its first statement, so an event may stand there without its delivery; or it took
    the transaction with it (PostgreSQL always, SQLite when the disk is full).
    ``ended_by``: the statement after which the server no longer had a transaction.
    ``shaken``: a statement failed in a way that may have ended the transaction (PostgreSQL: any; MySQL: a deadlock).
    ``loose_savepoint``: on SQLite a SAVEPOINT was set before any BEGIN, and its release commits.
    ``namings`` says for each event in which outbox it is. ``wakes`` are called after the commit; on ``channels``
    PostgreSQL tells listeners with it.
    """

    watched_from_begin: bool = True
    events: list[str] = field(default_factory=list)
    namings: list[Naming] = field(default_factory=list)
    size: int = 0
    torn: bool = False
    ended_by: str | None = None
    shaken: bool = False
    loose_savepoint: bool = False
    wakes: set[Callable[[], None]] = field(default_factory=set)
    channels: set[str] = field(default_factory=set)
    _savepoints: list[_Savepoint] = field(default_factory=list)

    def make_room(self, events: int, size: int, *, max_events: int, max_bytes: int) -> None:
        """Refuse what would make the transaction too large: TransactionTooLarge (PB-025)."""
        if len(self.events) + events > max_events:
            raise TransactionTooLarge(
                f"This transaction would hold {len(self.events) + events:,} events, the limit is {max_events:,}."
            )
        if self.size + size > max_bytes:
            raise TransactionTooLarge(
                f"The events of this transaction would have {self.size + size:,} bytes, the limit is {max_bytes:,}."
            )

    @property
    def is_open(self) -> bool:
        """There are events, and nothing says yet that their transaction cannot commit."""
        return bool(self.events) and self.ended_by is None and not self.torn

    def record(self, event_ids: Sequence[str], size: int, naming: Naming = PLAIN) -> None:
        self.events.extend(event_ids)
        self.namings.extend([naming] * len(event_ids))
        self.size += size

    def savepoint(self) -> None:
        self._savepoints.append(_Savepoint(len(self.events), self.size, self.torn))

    def release(self) -> None:
        if self._savepoints:
            self._savepoints.pop()

    def roll_back_to_savepoint(self) -> None:
        """One that was set before this ledger began encloses all that is in it."""
        kept, self.size, self.torn = self._savepoints.pop() if self._savepoints else _Savepoint(0, 0, False)
        del self.events[kept:], self.namings[kept:]

    def refusal(self) -> PillarboxError | None:
        """Why the transaction must not go on, or None."""
        if self.torn:
            return AddFailed("An add failed in this transaction, which can no longer commit as a whole.")
        if self.ended_by is not None:
            return ImplicitCommit(self._what_stands())
        return None

    def end(self, by: str, connection: Connection) -> None:
        """The server has no transaction any more: keep the ids of the events that stand committed. It asks once."""
        self.ended_by = by
        self.events = self.standing(connection)
        self.namings.clear()

    def standing(self, connection: Connection) -> list[str]:
        """Those of the events that are in the table of their outbox now, outbox by outbox."""
        found: list[str] = []
        for naming in dict.fromkeys(self.namings):
            own = [one for one, its in zip(self.events, self.namings, strict=True) if its is naming]
            found += standing(OverCore(connection, naming), own)
        return found

    def _what_stands(self) -> str:
        if not self.events:
            return f"{self.ended_by} ended the transaction. None of its events stands committed."
        ids = ", ".join(self.events[:5]) + (", …" if len(self.events) > 5 else "")
        return (
            f"{self.ended_by} ended the transaction. What was written before stands committed, "
            f"{len(self.events)} event(s) among it ({ids}); what comes after is not part of it."
        )


def ledger_of(connection: Connection) -> Ledger:
    """The ledger of the transaction under way; a new one where watching began too late to see its begin."""
    found: Ledger | None = connection.info.get(_LEDGER)
    if found is None:
        found = connection.info[_LEDGER] = Ledger(watched_from_begin=False)
    return found


def find(connection: Connection) -> Ledger | None:
    """The ledger, if the connection is there and has one."""
    return None if connection.closed or connection.invalidated else connection.info.get(_LEDGER)


def open_ledger(connection: Connection) -> None:
    connection.info[_LEDGER] = Ledger()


def close_ledger(connection: Connection) -> None:
    if not (connection.closed or connection.invalidated):
        connection.info.pop(_LEDGER, None)


# Fork -------------------------------------------------------------------------------------------------------------


def own(info: dict[str, object]) -> None:
    """Note that this process opened the connection."""
    info[_PROCESS] = os.getpid()


def check_process(connection: Connection, inherited: list[object]) -> None:
    """UsedAfterFork (PB-028) for a connection that another process opened or used before.

    The connection goes to ``inherited``, to be kept and never closed.
    """
    opened_by = connection.info.setdefault(_PROCESS, os.getpid())
    if opened_by != os.getpid():
        inherited.append(_let_go(connection))
        raise UsedAfterFork(f"The connection was opened by process {opened_by}, this is process {os.getpid()}.")


def _let_go(connection: Connection) -> object:
    """Take the DBAPI connection out of SQLAlchemy's hands without a byte on its socket, which the parent uses, too.

    The rollback at the end of the caller's block would end the parent's transaction, and closing it the session.
    """
    fairy: Any = connection.connection
    kept: object = fairy.dbapi_connection
    fairy._connection_record.dbapi_connection = None  # as in SQLAlchemy's recipe for pools and fork()
    connection.invalidate()
    return kept
