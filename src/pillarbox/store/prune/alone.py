"""One pruner at a time for one outbox: a lock that ends with its connection, whatever ends that.

Politeness, not safety: two pruners at once would pass over each other's rows. MySQL and MariaDB: GET_LOCK. PostgreSQL:
a session's advisory lock (behind a pooler that hands out connections by transaction it may stick to a pooled one: give
the pruner a direct connection there). SQLite: a lock on a file beside the database.
"""

from __future__ import annotations

import logging
import os
from typing import Final, Protocol

from sqlalchemy import Connection, Engine, exc

from ..naming import naming_of
from ..raw import fetch

log = logging.getLogger("pillarbox.prune")

_NUMBER: Final = 0x70696C6C617263  # the number after that of `init`


class Turn(Protocol):
    """The right to prune."""

    def take(self) -> bool:
        """Take it, or confirm that it is still held. False: another pruner has it."""
        ...

    def leave(self) -> None:
        """Give it back."""
        ...


def turn(engine: Engine) -> Turn:
    """The turn for the engine's outbox; not taken yet."""
    naming = naming_of(engine)
    if engine.dialect.name == "sqlite":
        return FileTurn(f"{engine.url.database}-{naming.prefix}prune")
    if engine.dialect.name == "postgresql":
        number = naming.number(_NUMBER)
        unlock = f"SELECT pg_advisory_unlock({number})"
        return SessionTurn(engine, f"SELECT pg_try_advisory_lock({number})", "SELECT true", unlock)
    name = naming.mysql_lock("pillarbox.prune.")
    still = f"SELECT IS_USED_LOCK({name}) = CONNECTION_ID()"
    return SessionTurn(engine, f"SELECT GET_LOCK({name}, 0)", still, f"SELECT RELEASE_LOCK({name})")


class SessionTurn:
    """A lock of a session, on a connection that does nothing else. Closing that connection ends the lock."""

    def __init__(self, engine: Engine, take: str, still: str, unlock: str) -> None:
        self._engine = engine
        self._unlock = unlock
        self._take = take
        self._still = still
        self._connection: Connection | None = None

    def take(self) -> bool:
        if self._connection is not None:
            try:
                if fetch(self._connection, self._still)[0][0]:
                    return True
            except exc.DBAPIError as error:
                if not error.connection_invalidated:
                    raise
            self.leave()
        # No transaction stays open on it: it would hold back purge and vacuum for as long as the run takes.
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self._connection = connection
        taken = bool(fetch(connection, self._take)[0][0])
        if not taken:
            self.leave()
        return taken

    def leave(self) -> None:
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        try:
            fetch(connection, self._unlock)  # the next one need not wait until the server notices the end
        except exc.DBAPIError as error:
            log.debug("the lock ends with its connection: %s", error)
        finally:
            connection.invalidate()  # closed, not pooled: a pooled session might keep the lock
            connection.close()


class FileTurn:
    """A lock on a file, for the processes and threads of one host: SQLite has no others."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> bool:
        import fcntl  # absent on Windows, where one pruner at a time is up to you

        if self._file is not None:
            return True
        file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
