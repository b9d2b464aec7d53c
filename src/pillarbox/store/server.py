"""A first look at the server that a relay will work on."""

from __future__ import annotations

from sqlalchemy import Connection

from ..errors import ConfigError
from .capabilities import Capabilities, detect
from .engines import check_schema


def look_at(connection: Connection) -> Capabilities:
    """Check isolation level and tables, and say what the server can do.

    Raises ConfigError (PB-001), TablesMissing (PB-006), SchemaMismatch (PB-007) or BadUrl (PB-002).
    """
    _check_isolation(connection)
    check_schema(connection)
    return detect(connection)


def _check_isolation(connection: Connection) -> None:
    """REPEATABLE READ takes gap locks on MySQL and gives serialisation errors on PostgreSQL."""
    level = connection.get_isolation_level()
    if connection.dialect.name != "sqlite" and level != "READ COMMITTED":
        raise ConfigError(f"A relay works at READ COMMITTED, its engine is at {level}.", fix="Use relay_engine(url).")
