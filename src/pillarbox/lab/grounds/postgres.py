"""PostgreSQL as the ground. The mark is the database's comment, which every session of the server can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, text

from ..model import NotVisible
from .claims import MARK

_SAFETY: Final = ("synchronous_commit", "fsync", "full_page_writes", "wal_level", "synchronous_standby_names")
_FOUND: Final = (
    "SELECT datname, shobj_description(oid, 'pg_database') = :mark FROM pg_database WHERE starts_with(datname, :prefix)"
)
_THERE: Final = "SELECT 1 FROM pg_database WHERE datname = :name"
_OTHERS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()"
)


class Postgres:
    """PostgreSQL 12 and newer."""

    name = "postgres"
    default_port: int | None = 5432
    clock: str | None = "SELECT EXTRACT(EPOCH FROM clock_timestamp())"

    def create(self, connection: Connection, name: str) -> None:
        """CREATE DATABASE from template0: a session in template1 would be in the way."""
        connection.exec_driver_sql(f'CREATE DATABASE "{name}" TEMPLATE template0')
        connection.exec_driver_sql(f"COMMENT ON DATABASE \"{name}\" IS '{MARK.replace(chr(39), chr(39) * 2)}'")

    def drop(self, connection: Connection, name: str) -> None:
        """With the sessions that are still in it: FORCE is known from 13 on, and ends them itself."""
        if connection.execute(text(_THERE), {"name": name}).first() is None:
            return
        connection.execute(text(_OTHERS), {"name": name})
        force = " WITH (FORCE)" if (connection.dialect.server_version_info or (0,)) >= (13,) else ""
        connection.exec_driver_sql(f'DROP DATABASE IF EXISTS "{name}"{force}')

    def found(self, connection: Connection, prefix: str) -> Mapping[str, bool]:
        """The databases whose names begin so, and whether each has the lab's comment."""
        rows = connection.execute(text(_FOUND), {"prefix": prefix, "mark": MARK})
        return {str(name): bool(marked) for name, marked in rows}

    def settings(self, connection: Connection) -> Mapping[str, Any]:
        """Version and what makes a commit durable, as this session has it."""
        asked = text("SELECT name, setting FROM pg_settings WHERE name = ANY(:names)")
        found = {str(name): value for name, value in connection.execute(asked, {"names": list(_SAFETY)}).all()}
        version = str(connection.exec_driver_sql("SHOW server_version").scalar_one())
        return {
            "server_version": version,
            **{name: found.get(name, NotVisible("the server does not show it to this user")) for name in _SAFETY},
        }
