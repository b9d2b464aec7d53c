"""What the database itself counted, for one database or one account alone: other work on the server does not show.

MySQL's performance schema counts rows per table and statements per account, so a measured process logs in under a name
of its own. PostgreSQL counts per database. MariaDB without a performance schema, and SQLite, count nothing that could
be told apart.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Row, create_engine, make_url, text

Counts = Mapping[str, int]

PG_TABLES = text(
    "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del, coalesce(idx_tup_fetch, 0) + seq_tup_read"
    " FROM pg_stat_user_tables"
)
PG_DATABASE = text("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
MYSQL_TABLES = text(
    "SELECT object_name, count_insert, count_update, count_delete, count_fetch"
    " FROM performance_schema.table_io_waits_summary_by_table WHERE object_schema = DATABASE()"
)
MYSQL_COMMITS = text(
    "SELECT coalesce(sum(count_star), 0) FROM performance_schema.events_statements_summary_by_user_by_event_name"
    " WHERE user = :user AND event_name = 'statement/sql/commit'"
)
MYSQL_STATEMENTS = text(
    "SELECT coalesce(sum(count_star), 0) FROM performance_schema.events_statements_summary_by_user_by_event_name"
    " WHERE user = :user AND event_name NOT IN ('statement/com/Ping', 'statement/com/Quit')"
)


HOT_TABLE = "outbox_ready"


@contextmanager
def own_account(url: str) -> Iterator[str]:
    """The same database under an account that nobody else uses, where the server counts per account."""
    place = make_url(url)
    if place.get_backend_name() not in ("mysql", "mariadb"):
        yield url
        return
    engine = create_engine(url)
    name = f"bench_{secrets.token_hex(6)}"
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY '{name}'")
            connection.exec_driver_sql(f"GRANT ALL ON *.* TO {name}@'127.0.0.1'")
        yield place.set(username=name, password=name).render_as_string(hide_password=False)
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP USER IF EXISTS {name}@'127.0.0.1'")
        engine.dispose()


class Counters:
    """Reads the counters of ``url``'s database, or account, by a connection that they do not count."""

    def __init__(self, url: str, watched: str) -> None:
        """``watched`` is the URL that the measured process uses."""
        self._engine = create_engine(url)
        self._user = make_url(watched).username
        self.kind = self._engine.dialect.name

    def read(self) -> Counts:
        """What was counted so far; empty where nothing is."""
        if self.kind == "sqlite":
            return {}
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            return _postgres(connection) if self.kind == "postgresql" else _mysql(connection, self._user or "")

    def settled(self) -> Counts:
        """The same, when PostgreSQL's backends have reported: they do so within a second of idling, or at their end."""
        before = self.read()
        deadline = time.monotonic() + 15
        while self.kind == "postgresql" and time.monotonic() < deadline:
            time.sleep(1.1)
            now = self.read()
            # Our own looks are transactions, too.
            if all(now[name] == before.get(name, 0) for name in now if name.startswith("rows")):
                return now
            before = now
        return before

    def close(self) -> None:
        self._engine.dispose()


def difference(after: Counts, before: Counts) -> dict[str, int]:
    """What came on top."""
    return {name: count - before.get(name, 0) for name, count in after.items()}


def per_event(counts: Counts, events: int) -> dict[str, float]:
    """Of all tables; ``rows_examined`` of the hot table alone, without the look-up that begins each change of a row."""
    names = ("commits", "rows_written", "rows_inserted", "rows_updated", "rows_deleted", "rows_examined")
    return {name: round(counts[name] / events, 4) for name in names} if counts else {}


def _postgres(connection: Connection) -> Counts:
    tables = connection.execute(PG_TABLES).all()
    commits = int(connection.execute(PG_DATABASE).scalar_one())
    return _summed(tables) | {"commits": commits, "statements": commits}


def _mysql(connection: Connection, user: str) -> Counts:
    if not connection.exec_driver_sql("SELECT @@performance_schema").scalar_one():
        return {}
    of_user = {"user": user}
    return _summed(connection.execute(MYSQL_TABLES).all()) | {
        "commits": int(connection.execute(MYSQL_COMMITS, of_user).scalar_one()),
        "statements": int(connection.execute(MYSQL_STATEMENTS, of_user).scalar_one()),
    }


def _summed(tables: Sequence[Row[Any]]) -> dict[str, int]:
    """Rows of (table, inserted, updated, deleted, fetched)."""
    rows = [(str(name), int(new), int(changed), int(gone), int(found)) for name, new, changed, gone, found in tables]
    counts = [row[1:] for row in rows]
    inserted, updated, deleted = (sum(row[place] for row in counts) for place in range(3))
    return {
        "rows_inserted": inserted,
        "rows_updated": updated,
        "rows_deleted": deleted,
        "rows_written": inserted + updated + deleted,
        "rows_examined": sum(found - gone - changed for name, _, changed, gone, found in rows if name == HOT_TABLE),
    }
