"""An engine for a consumer that was given a URL."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ..store.engines import sqlite_engine, use_explicit_begin
from ..store.failures import connect_error

# Handlers may take their time and need every plan, so unlike the relay's engine this one sets no statement time-outs
# and pins no plans. What it bounds is connecting, and silence on the wire.
_CONNECT_SECONDS: Final = 10
_MYSQL: Final = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": 300, "write_timeout": 60, "charset": "utf8mb4"}
_POSTGRES: Final = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "pymysql": _MYSQL,
        "mysqldb": _MYSQL,
        "psycopg": _POSTGRES,
        "psycopg2": _POSTGRES,
        "psycopg_async": _POSTGRES,
        "asyncpg": {"timeout": _CONNECT_SECONDS},
        "aiomysql": {"connect_timeout": _CONNECT_SECONDS, "charset": "utf8mb4"},
        "asyncmy": {"connect_timeout": _CONNECT_SECONDS, "charset": "utf8mb4"},
    }
)
_ASYNC_DRIVERS: Final = frozenset({"asyncpg", "psycopg_async", "aiomysql", "asyncmy", "aiosqlite"})
_DRIVERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "mysql": "mysql+pymysql",
        "mariadb": "mariadb+pymysql",
        "postgresql": "postgresql+psycopg",
        "postgres": "postgresql+psycopg",
    }
)


def consumer_engine(url: str, *, connections: int = 1) -> Engine:
    """A small pool for one consumer: ``connections`` of its own, and one to spare for the handlers' use.

    A URL without driver means PyMySQL or psycopg. Connects to nothing yet. Raises BadUrl (PB-002) and MissingDriver
    (PB-003).

    >>> consumer_engine("sqlite:///stock.db").dialect.name
    'sqlite'
    """
    try:
        parsed = _parsed(url)
        if parsed.get_backend_name() == "sqlite":
            return sqlite_engine(parsed, pool_size=max(4, connections + 1))
        arguments = _ARGUMENTS.get(parsed.get_driver_name(), {})
        own = {name: value for name, value in arguments.items() if name not in parsed.query}
        return create_engine(
            parsed, pool_size=connections, max_overflow=1, pool_timeout=10, pool_recycle=280, connect_args=own
        )
    except (ArgumentError, ImportError) as error:
        raise connect_error(error, url) from error


def consumer_async_engine(url: str, *, connections: int = 1) -> AsyncEngine:
    """The same for the URL of an async driver.

    >>> consumer_async_engine("sqlite+aiosqlite:///stock.db").dialect.driver
    'aiosqlite'
    """
    try:
        parsed = _parsed(url)
        arguments = _ARGUMENTS.get(parsed.get_driver_name(), {})
        own = {name: value for name, value in arguments.items() if name not in parsed.query}
        if parsed.get_backend_name() == "sqlite":
            engine = create_async_engine(parsed, connect_args={"timeout": 5.0})
            use_explicit_begin(engine.sync_engine)
            return engine
        return create_async_engine(
            parsed, pool_size=connections, max_overflow=1, pool_timeout=10, pool_recycle=280, connect_args=own
        )
    except (ArgumentError, ImportError) as error:
        raise connect_error(error, url) from error


def is_async_url(url: str) -> bool:
    """Whether a URL names an async driver.

    >>> is_async_url("postgresql+asyncpg://db/stock"), is_async_url("postgresql://db/stock")
    (True, False)
    """
    return url.partition("://")[0].partition("+")[2] in _ASYNC_DRIVERS


def _parsed(url: str) -> URL:
    parsed = make_url(url)
    return parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
