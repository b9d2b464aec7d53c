"""The application of these tests: one table of orders beside the outbox, on any server, through any driver."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Integer, String, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import NullPool

from pillarbox.event.event import Event
from pillarbox.store.engines import sqlite_engine, use_explicit_begin
from pillarbox.store.install import install


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    __table_args__ = {"mysql_engine": "InnoDB"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    name: Mapped[str] = mapped_column(String(50))


SYNC = {
    "sqlite-pysqlite": ("sqlite", "sqlite+pysqlite"),
    "postgres-psycopg": ("postgres", "postgresql+psycopg"),
    "postgres-psycopg2": ("postgres", "postgresql+psycopg2"),
    "mysql-pymysql": ("mysql", "mysql+pymysql"),
    "mysql-mysqldb": ("mysql", "mysql+mysqldb"),
    "mysql57-pymysql": ("mysql57", "mysql+pymysql"),
    "mariadb-pymysql": ("mariadb", "mysql+pymysql"),
    "mariadb102-pymysql": ("mariadb102", "mariadb+pymysql"),
}
ASYNC = {
    "sqlite-aiosqlite": ("sqlite", "sqlite+aiosqlite"),
    "postgres-asyncpg": ("postgres", "postgresql+asyncpg"),
    "postgres-psycopg": ("postgres", "postgresql+psycopg"),
    "mysql-aiomysql": ("mysql", "mysql+aiomysql"),
    "mysql-asyncmy": ("mysql", "mysql+asyncmy"),
    "mariadb102-aiomysql": ("mariadb102", "mysql+aiomysql"),
}


def through(*names: str, fixture: str = "engine") -> pytest.MarkDecorator:
    """Run the test through these drivers only."""
    known = SYNC if fixture == "engine" else ASYNC
    return pytest.mark.parametrize(fixture, parameters({name: known[name] for name in names}), indirect=True)


def parameters(known: dict[str, tuple[str, str]]) -> list[Any]:
    return [
        pytest.param(name, marks=() if server == "sqlite" else pytest.mark.services)
        for name, (server, _) in known.items()
    ]


_numbers = itertools.count(1)


def new_name() -> str:
    """An order and an aggregate id that no other test of this database uses."""
    return f"order-{next(_numbers)}"


def event(name: str, **more: Any) -> Event[Any]:
    return Event({"order": name}, type="order.created", aggregate=("order", name), **more)


def with_driver(url: str, drivername: str) -> str:
    return make_url(url).set(drivername=drivername).render_as_string(hide_password=False)


def open_engine(url: str, **options: Any) -> Engine:
    return sqlite_engine(url) if url.startswith("sqlite") and not options else create_engine(url, **options)


def open_async_engine(url: str) -> AsyncEngine:
    """Without a pool: each test has its own event loop."""
    engine = create_async_engine(url, poolclass=NullPool)
    if url.startswith("sqlite"):
        use_explicit_begin(engine.sync_engine)
    return engine


@contextmanager
def installed(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    install(engine)
    Base.metadata.create_all(engine)
    try:
        yield engine
    finally:
        engine.dispose()


def orders(engine: Engine, name: str) -> int:
    """How many orders of this name are committed."""
    return _count(engine, "SELECT count(*) FROM orders WHERE name = :name", name)


def events(engine: Engine, name: str) -> int:
    """How many events of this order are committed, each with its delivery."""
    written = _count(engine, "SELECT count(*) FROM outbox_event WHERE aggregate_id = :name", name)
    waiting = _count(
        engine,
        "SELECT count(*) FROM outbox_event e JOIN outbox_ready r ON r.id = e.id WHERE e.aggregate_id = :name",
        name,
    )
    assert written == waiting
    return written


def _count(engine: Engine, sql: str, name: str) -> int:
    with engine.connect().execution_options(pillarbox_begin="DEFERRED") as connection:
        return int(connection.execute(text(sql), {"name": name}).scalar_one())


def insert_order(connection: Connection, name: str) -> None:
    connection.execute(text("INSERT INTO orders (name) VALUES (:name)"), {"name": name})
