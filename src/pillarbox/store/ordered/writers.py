"""Which transactions are open now and may have drawn ids for events that nobody else can see yet.

Only by name: a caller remembers the names and waits until none of them is there any more. One transaction may have
several names, and a name stands for more than one, but a transaction never loses all of its names while it is open.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, exc

from ..failures import Fault, fault_of
from ..raw import fetch

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
    "SELECT DISTINCT CONCAT(trx_started, '') FROM information_schema.innodb_trx"
    " WHERE trx_mysql_thread_id <> CONNECTION_ID()"
    " AND (trx_rows_modified > 0 OR trx_query IS NOT NULL OR trx_state = 'LOCK WAIT')"
)


def writers(connection: Connection) -> frozenset[str] | None:
    """The names; None where the user may not look (MySQL and MariaDB: without the PROCESS privilege)."""
    match connection.dialect.name:
        case "postgresql":
            return _of_postgres(connection)
        case "sqlite":
            return frozenset()  # one writer at a time: whoever drew an id has committed, or holds the lock alone
        case _:
            return _of_mysql(connection)


def _of_postgres(connection: Connection) -> frozenset[str]:
    rows = fetch(connection, _POSTGRES)
    writing = {virtual for virtual, _, kind in rows if kind == "relation"}
    return frozenset(writing | {f"xid {xid}" for virtual, xid, _ in rows if xid and virtual in writing})


def _of_mysql(connection: Connection) -> frozenset[str] | None:
    try:
        return frozenset(row[0] for row in fetch(connection, _MYSQL))
    except exc.DBAPIError as error:
        if fault_of(error) is Fault.REFUSED:
            return None
        raise
