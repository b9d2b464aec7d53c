"""Engines as applications make them: nothing but the URL, and deadlines on the calls of the drivers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Engine, create_engine, make_url

SECONDS: Final = 10

_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "sqlite": {"timeout": float(SECONDS)},
    "mysql": {"connect_timeout": SECONDS, "read_timeout": SECONDS, "write_timeout": SECONDS},
    "mariadb": {"connect_timeout": SECONDS, "read_timeout": SECONDS, "write_timeout": SECONDS},
    "postgresql": {
        "connect_timeout": SECONDS,
        "tcp_user_timeout": SECONDS * 1000,
        "options": f"-c statement_timeout={SECONDS}s",
    },
}


def plain_engine(url: str, *, connections: int = 1) -> Engine:
    """The driver's own isolation level and autocommit, SQLAlchemy's own pool.

    SQLite's driver is left as it comes, too: it begins a transaction before the first write and not before a read.
    """
    backend = make_url(url).get_backend_name()
    return create_engine(url, connect_args=dict(_ARGUMENTS[backend]), pool_size=max(1, connections), max_overflow=1)
