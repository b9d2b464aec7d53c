"""Which transactions are open now and may have drawn ids for events that nobody else can see yet.

Only by name: a caller remembers the names and waits until none of them is there any more. One transaction may have
several names, and a name may stand for more than one, but a transaction never loses all of its names while it is open.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, exc

from ..failures import Fault, fault_of
from ..raw import fetch
from .kept import Database

# INSERT locks the table before it draws an id, and the lock lasts as long as the transaction, also a prepared one.
# Transactions that never touched the table are not there. PREPARE changes the virtual name, but not the xid.
_POSTGRES: Final = (
    "SELECT virtualtransaction, transactionid::text, locktype FROM pg_locks WHERE granted AND"
    " ((locktype = 'transactionid' AND mode = 'ExclusiveLock') OR (locktype = 'relation'"
    " AND mode = 'RowExclusiveLock' AND relation = 'outbox_event'::regclass AND pid IS DISTINCT FROM pg_backend_pid()"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())))"
)
# InnoDB does not tell which tables a transaction changed: what changed anything, or runs or waits right now, counts.
# The second in which it began is what stays when it gets an id, and when XA PREPARE takes its thread away.
_MYSQL: Final = (
    "SELECT /* {mark} */ CONCAT(trx_started, ''), trx_mysql_thread_id = CONNECTION_ID(), LEFT(trx_query, 60)"
    " FROM information_schema.innodb_trx"
    " WHERE trx_rows_modified > 0 OR trx_query IS NOT NULL OR trx_state = 'LOCK WAIT'"
)
# The server makes the list anew only when nobody has read it for 0.1 s; who reads it more often gets the same for ever.
REST: Final = 0.12


class Writers:
    """Looks for one relay. An answer is at most REST seconds old."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._looked_at = -REST
        self._last: frozenset[str] | None = None

    def look(self, database: Database, dialect: str) -> frozenset[str] | None:
        """The names; None: not known, since the user may not look (MySQL, MariaDB: PROCESS), or just now."""
        match dialect:
            case "postgresql":
                return database.read(_of_postgres)
            case "sqlite":
                return frozenset()  # one writer at a time: whoever drew an id has committed, or holds the lock alone
            case _:
                return self._of_mysql(database)

    def _of_mysql(self, database: Database) -> frozenset[str] | None:
        if self._monotonic() - self._looked_at >= REST:  # asking more often would keep the list old
            self._last = self._fresh_list(database)
            self._looked_at = self._monotonic()
        return self._last

    def _fresh_list(self, database: Database) -> frozenset[str] | None:
        """None also when somebody else has read the list a moment ago, so that it was not made anew for us.

        It is not waited for: the relay has other work, and asks again.
        """
        mark = secrets.token_hex(8)
        rows = database.write(lambda connection: _list(connection, mark))
        if rows is None or not any(own and mark in query for _, own, query in rows):
            return None
        return frozenset(name for name, own, _ in rows if not own)


def _of_postgres(connection: Connection) -> frozenset[str]:
    rows = fetch(connection, _POSTGRES)
    writing = {virtual for virtual, _, kind in rows if kind == "relation"}
    return frozenset(writing | {f"xid {xid}" for virtual, xid, _ in rows if xid and virtual in writing})


def _list(connection: Connection, mark: str) -> list[tuple[str, int, str]] | None:
    # Only a transaction is in the list, and reading a row makes ours one: so it can find itself.
    fetch(connection, "SELECT one FROM outbox_meta WHERE one = 1")
    try:
        return [(str(name), own, query or "") for name, own, query in fetch(connection, _MYSQL.format(mark=mark))]
    except exc.DBAPIError as error:
        if fault_of(error) is Fault.REFUSED:
            return None
        raise
