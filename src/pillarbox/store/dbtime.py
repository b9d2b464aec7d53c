"""The database's own clock, in UTC. Never the transaction's start, and never this machine's clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection

_NOW: Final = {
    "postgresql": "clock_timestamp()",
    "sqlite": "strftime('%Y-%m-%d %H\\:%M\\:%f', 'now')",
    "mysql": "UTC_TIMESTAMP(6)",
    "mariadb": "UTC_TIMESTAMP(6)",
}
_AFTER: Final = {
    "postgresql": "clock_timestamp() + ({seconds}) * interval '1 second'",
    "sqlite": "strftime('%Y-%m-%d %H\\:%M\\:%f', 'now', ({seconds}) || ' seconds')",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL ROUND(({seconds}) * 1000000) MICROSECOND",
    "mariadb": "UTC_TIMESTAMP(6) + INTERVAL ROUND(({seconds}) * 1000000) MICROSECOND",
}
_AGE: Final = {
    "postgresql": "EXTRACT(EPOCH FROM clock_timestamp() - {moment})",
    "sqlite": "(julianday('now') - julianday({moment})) * 86400.0",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, {moment}, UTC_TIMESTAMP(6)) / 1000000.0",
    "mariadb": "TIMESTAMPDIFF(MICROSECOND, {moment}, UTC_TIMESTAMP(6)) / 1000000.0",
}


def now(connection: Connection) -> str:
    """SQL for the current time, to stand in a ``text()`` (its colons are escaped)."""
    return _NOW[connection.dialect.name]


def after(connection: Connection, seconds: str) -> str:
    """SQL for the time ``seconds`` (SQL for a number, or NULL) from now, to stand in a ``text()``."""
    return _AFTER[connection.dialect.name].format(seconds=seconds)


def age(connection: Connection, moment: str) -> str:
    """SQL for the seconds since the column ``moment``."""
    return _AGE[connection.dialect.name].format(moment=moment)


def aware(moment: datetime) -> datetime:
    """What a driver gives for a stored moment, with its zone: only PostgreSQL's drivers say that it is UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
