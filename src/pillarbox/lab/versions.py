"""Versions of everything on this side of the network; the servers tell theirs to the grounds (``settings()``)."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

_DISTRIBUTIONS: Final = ("pillarbox", "SQLAlchemy", "alembic", "msgspec")
_OF_DATABASE: Final = {
    "postgres": ("psycopg", "psycopg2-binary", "psycopg2"),
    "mysql": ("PyMySQL", "mysqlclient"),
    "mariadb": ("PyMySQL", "mysqlclient"),
    "sqlite": (),
}
_OF_BROKER: Final = {"kafka": ("confluent-kafka",), "rabbitmq": ("pika",), "embedded": ()}


def versions(database: str | None = None, broker: str | None = None) -> Mapping[str, str]:
    """By name: Python, the platform, Pillarbox, what it is built on, and the clients of these servers.

    ``database`` and ``broker`` are the grounds' names (``postgres``, ``kafka``, …); without one, all of its kind. What
    is not installed is not listed. SQLite's own version and librdkafka's come with Python and with the client.
    """
    names = [
        *_DISTRIBUTIONS,
        *(_OF_DATABASE.get(database, ()) if database else _all(_OF_DATABASE)),
        *(_OF_BROKER.get(broker, ()) if broker else _all(_OF_BROKER)),
    ]
    found = {"Python": platform.python_version(), "platform": platform.platform()}
    for name in dict.fromkeys(names):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if database in (None, "sqlite") or broker in (None, "embedded"):
        found["SQLite"] = _sqlite()
    if "confluent-kafka" in found:
        found["librdkafka"] = _librdkafka()
    return found


def _all(by_server: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [name for names in by_server.values() for name in names]


def _sqlite() -> str:
    import sqlite3

    return sqlite3.sqlite_version


def _librdkafka() -> str:
    from confluent_kafka import libversion  # loaded where it is installed and asked for only

    return str(libversion()[0])
