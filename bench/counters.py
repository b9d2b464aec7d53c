"""What the database itself counted, for one database or one account alone: other work on the server does not show.

MySQL's performance schema counts statements, and the rows they examined and changed, per account, so a measured process
logs in under a name of its own. PostgreSQL counts per database. MariaDB without a performance schema, and SQLite, count
nothing that could be told apart.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine, make_url, text

Counts = Mapping[str, int]

PG_TABLES = text("SELECT relname, n_tup_ins, n_tup_upd, n_tup_del, coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables")
PG_DATABASE = text("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
MYSQL_STATEMENTS = text(
    "SELECT event_name, count_star, sum_rows_affected, sum_rows_examined"
    " FROM performance_schema.events_statements_summary_by_user_by_event_name WHERE user = :user AND count_star > 0"
)
MYSQL_EVENTS_READ = text(
    "SELECT coalesce(sum(count_fetch), 0) FROM performance_schema.table_io_waits_summary_by_table"
    " WHERE object_schema = DATABASE() AND object_name = 'outbox_event'"
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
    """``rows_written`` of all tables; ``rows_examined`` of the hot table alone, by what reads it."""
    names = ("commits", "rows_written", "rows_inserted", "rows_updated", "rows_deleted", "rows_examined")
    return {name: round(counts[name] / events, 4) for name in names} if counts else {}


def _postgres(connection: Connection) -> Counts:
    tables = {name: tuple(map(int, counts)) for name, *counts in connection.execute(PG_TABLES)}
    inserted, updated, deleted = (sum(counts[place] for counts in tables.values()) for place in range(3))
    _, changed, gone, fetched = tables.get(HOT_TABLE, (0, 0, 0, 0))
    commits = int(connection.execute(PG_DATABASE).scalar_one())
    return {
        "commits": commits,
        "statements": commits,  # those of an idle relay are transactions of their own
        "rows_inserted": inserted,
        "rows_updated": updated,
        "rows_deleted": deleted,
        "rows_written": inserted + updated + deleted,
        # A row is looked up again by its key to be deleted; by its address, that is not counted.
        "rows_examined": max(fetched - gone - changed, min(fetched, gone)),
    }


def _mysql(connection: Connection, user: str) -> Counts:
    if not connection.exec_driver_sql("SELECT @@performance_schema").scalar_one():
        return {}
    found = {name: tuple(map(int, counts)) for name, *counts in connection.execute(MYSQL_STATEMENTS, {"user": user})}

    def total(place: int, *kinds: str) -> int:
        """Of these kinds of statement; a DELETE that names its table twice is counted as ``delete_multi``."""
        return sum(counts[place] for name, counts in found.items() if name.removeprefix("statement/sql/") in kinds)

    inserted, updated = total(1, "insert", "insert_select", "replace"), total(1, "update", "update_multi")
    deleted = total(1, "delete", "delete_multi")
    return {
        "commits": total(0, "commit"),
        "statements": sum(counts[0] for name, counts in found.items() if not name.startswith("statement/com/")),
        "rows_inserted": inserted,
        "rows_updated": updated,
        "rows_deleted": deleted,
        "rows_written": inserted + updated + deleted,
        # A query that joins work and events examines one of each.
        "rows_examined": total(2, "select") - int(connection.execute(MYSQL_EVENTS_READ).scalar_one()),
    }
