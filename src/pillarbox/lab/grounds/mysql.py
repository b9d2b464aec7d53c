"""MySQL and MariaDB as the ground. A database has no comment there, so the mark is the comment of a table in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from ..model import NotVisible
from .claims import MARK

MARKER: Final = "lab_marker"
_SAFETY: Final = (
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
    "log_bin",
    "binlog_format",
    "innodb_doublewrite",
)
# LEFT(), not LIKE: an underscore is a wildcard there.
_FOUND: Final = (
    "SELECT s.schema_name, t.table_comment FROM information_schema.schemata s"
    f" LEFT JOIN information_schema.tables t ON t.table_schema = s.schema_name AND t.table_name = '{MARKER}'"
    " WHERE LEFT(s.schema_name, :length) = :prefix"
)
_SESSIONS: Final = "SELECT id FROM information_schema.processlist WHERE db = :name AND id <> CONNECTION_ID()"
_GONE: Final = 1094  # ER_NO_SUCH_THREAD


class Mysql:
    """MySQL 5.7 and newer, MariaDB 10.2 and newer."""

    name = "mysql"
    default_port: int | None = 3306
    clock: str | None = (
        "SELECT UNIX_TIMESTAMP(NOW(6))"  # of the statement's beginning, whatever the session's time zone
    )

    def create(self, connection: Connection, name: str) -> None:
        """CREATE DATABASE, and at once the marker table. DDL commits by itself: killed in between, only the journal
        tells whose it is."""
        connection.exec_driver_sql(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        mark = MARK.replace("'", "''")
        connection.exec_driver_sql(f"CREATE TABLE `{name}`.{MARKER} (one INT PRIMARY KEY) COMMENT = '{mark}'")

    def drop(self, connection: Connection, name: str) -> None:
        """With the sessions that are still in it: an open transaction would hold up DROP DATABASE by its locks."""
        for (session,) in connection.execute(text(_SESSIONS), {"name": name}).all():
            try:
                connection.exec_driver_sql(f"KILL {int(session)}")
            except DBAPIError as error:
                if not error.orig or error.orig.args[0] != _GONE:
                    raise
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS `{name}`")

    def found(self, connection: Connection, prefix: str) -> Mapping[str, bool]:
        """The databases whose names begin so, and whether each has the marker table."""
        rows = connection.execute(text(_FOUND), {"prefix": prefix, "length": len(prefix)})
        return {str(name): comment == MARK for name, comment in rows}

    def settings(self, connection: Connection) -> Mapping[str, Any]:
        """Version and what makes a commit durable, as this session has it."""
        listed = ", ".join(f"'{name}'" for name in _SAFETY)
        found = {
            str(name).lower(): value
            for name, value in connection.exec_driver_sql(f"SHOW VARIABLES WHERE Variable_name IN ({listed})").all()
        }
        version = str(connection.exec_driver_sql("SELECT VERSION()").scalar_one())
        return {
            "server_version": version,
            **{name: found.get(name, NotVisible("this server has no such variable")) for name in _SAFETY},
        }


class Mariadb(Mysql):
    """The same, by its own name."""

    name = "mariadb"
