"""The server dies, the disk is full, the process forks: a clear error, and nothing is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.event import listen
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from pillarbox.errors import AccessRefused, AddFailed, DatabaseUnavailable, ImplicitCommit, InvalidEvent
from pillarbox.event.event import Event
from pillarbox.outbox import AsyncOutbox, Outbox
from pillarbox.store.engines import relay_engine
from pillarbox.store.rowlease import RowLeaseStore
from tests.integration.outbox.shop import (
    ASYNC,
    SYNC,
    Order,
    event,
    events,
    insert_order,
    installed,
    new_name,
    open_engine,
    orders,
    through,
)

SERVERS = [name for name in SYNC if not name.startswith("sqlite")]
ASYNC_SERVERS = [name for name in ASYNC if not name.startswith("sqlite")]


def server_id(connection: Connection) -> int:
    own = "pg_backend_pid()" if connection.dialect.name == "postgresql" else "CONNECTION_ID()"
    return int(connection.execute(text(f"SELECT {own}")).scalar_one())


def kill(engine: Engine, victim: int) -> None:
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_terminate_backend({victim})"))
        else:
            connection.execute(text(f"KILL {victim}"))


@through(*SERVERS)
def test_a_connection_that_dies_before_an_add_loses_nothing_and_the_next_transaction_works(
    engine: Engine, shops: Any
) -> None:
    outbox, name, killer = Outbox(engine), new_name(), open_engine(str(engine.url.render_as_string(False)))
    with Session(engine) as session:
        session.add(Order(name=name))
        outbox.add(session, event(name), to="orders")
        kill(killer, server_id(session.connection()))
        with pytest.raises(DatabaseUnavailable, match="PB-004"):
            outbox.add(session, event(name), to="orders")
        with pytest.raises(DatabaseUnavailable, match=r"lost in this transaction.*Roll back"):
            outbox.add(session, event(name), to="orders")
        session.rollback()
        assert (orders(killer, name), events(killer, name)) == (0, 0)
        session.add(Order(name=name))
        outbox.add(session, event(name), to="orders")
        session.commit()
    assert (orders(killer, name), events(killer, name)) == (1, 1)
    killer.dispose()


@through(*SERVERS)
def test_a_connection_that_dies_before_the_commit_leaves_neither_row(engine: Engine) -> None:
    outbox, name, killer = Outbox(engine), new_name(), open_engine(str(engine.url.render_as_string(False)))
    with Session(engine) as session:
        insert_order(session.connection(), name)
        outbox.add(session, event(name), to="orders")
        kill(killer, server_id(session.connection()))
        with pytest.raises(DBAPIError):
            session.commit()
    assert (orders(killer, name), events(killer, name)) == (0, 0)
    killer.dispose()


@through(*ASYNC_SERVERS, fixture="async_engine")
def test_an_async_connection_that_dies_loses_nothing(async_engine: AsyncEngine, reader: Engine) -> None:
    outbox, name = AsyncOutbox(async_engine), new_name()

    async def story() -> None:
        async with AsyncSession(async_engine) as session:
            await outbox.add(session, event(name), to="orders")
            kill(reader, await (await session.connection()).run_sync(server_id))
            with pytest.raises(DatabaseUnavailable, match="PB-004"):
                await outbox.add(session, event(name), to="orders")
            await session.rollback()
            await outbox.add(session, event(name), to="orders")
            await session.commit()
        await async_engine.dispose()

    asyncio.run(story())
    assert events(reader, name) == 1


@through("postgres-psycopg", "mysql-pymysql", "mysql-mysqldb")
def test_a_server_that_is_away_or_refuses_the_password_is_named_without_it(engine: Engine) -> None:
    away = create_engine(engine.url.set(port=1))
    with Session(away) as session, pytest.raises(DatabaseUnavailable, match=r"PB-004.*:1/"):
        Outbox(away).add(session, event("x"), to="orders")
    if engine.dialect.name == "mysql":  # the test's PostgreSQL trusts everybody
        refused = create_engine(engine.url.set(password="wrong-secret"))
        with Session(refused) as session, pytest.raises(AccessRefused, match="PB-008") as caught:
            Outbox(refused).add(session, event("x"), to="orders")
        assert "wrong-secret" not in str(caught.value)


def test_a_full_disk_on_sqlite_is_an_error_at_add_and_nothing_is_lost(tmp_path: Any) -> None:
    """SQLite undoes the whole transaction then; what comes after in it must not commit by itself."""
    name, kept, url = new_name(), new_name(), f"sqlite:///{tmp_path / 'full.db'}"
    with installed(url) as engine:
        outbox = Outbox(engine)
        with Session(engine) as session, session.begin():
            outbox.add(session, event(kept), to="orders")
        with Session(engine) as session:
            session.add(Order(name=name))
            session.flush()
            limit(session.connection())
            with pytest.raises(DatabaseUnavailable, match=r"PB-004.*full"):
                outbox.add(session, Event("x" * 500_000, type="big", aggregate=("order", name)), to="orders")
            with pytest.raises(AddFailed, match="PB-029"):
                session.commit()
        assert (orders(engine, name), events(engine, name), events(engine, kept)) == (0, 0, 1)
        with Session(engine) as session, session.begin():
            session.add(Order(name=name))
            outbox.add(session, event(name), to="orders")
        assert (orders(engine, name), events(engine, name)) == (1, 1)


def test_a_full_disk_at_a_business_row_on_sqlite_is_found_before_the_commit(tmp_path: Any) -> None:
    name, url = new_name(), f"sqlite:///{tmp_path / 'full.db'}"
    with installed(url) as engine, engine.connect() as connection:
        Outbox(engine).add(connection, event(name), to="orders")
        limit(connection)
        with pytest.raises(DBAPIError, match="full"):
            connection.execute(text("INSERT INTO orders (name) VALUES (zeroblob(500000))"))
        with pytest.raises(ImplicitCommit, match="None of its events stands committed"):
            connection.commit()
        assert events(engine, name) == 0


def test_a_full_disk_on_sqlite_is_an_error_in_the_claim_and_nothing_is_lost(tmp_path: Any) -> None:
    url, names = f"sqlite:///{tmp_path / 'full.db'}", [new_name() for _ in range(600)]
    with installed(url) as engine, engine.begin() as connection:
        Outbox(engine).add_all(connection, map(event, names), to="orders")
    full, roomy = relay_engine(url), relay_engine(url)
    listen(full, "connect", lambda connection, _record: connection.execute("PRAGMA max_page_count = 1"))
    # A claim writes the owner's name into each row: with a long one the rows need more pages.
    with pytest.raises(DatabaseUnavailable, match=r"PB-004.*full"):
        RowLeaseStore(full, relay_id="r" * 64, lease=60).claim(600)
    claimed = RowLeaseStore(roomy, relay_id="relay", lease=60).claim(600)
    assert {delivery.message.aggregate_id for delivery in claimed.deliveries} == set(names)
    assert {delivery.claims for delivery in claimed.deliveries} == {1}
    full.dispose()
    roomy.dispose()


def limit(connection: Connection) -> None:
    """No more pages than there are."""
    connection.execute(text("PRAGMA max_page_count = 1"))


@through("mysql-pymysql", "sqlite-pysqlite")
def test_a_first_statement_that_fails_does_not_spoil_the_transaction(engine: Engine) -> None:
    outbox, name, kept = Outbox(engine), new_name(), new_name()
    with Session(engine) as session, session.begin():
        queued = outbox.add(session, event(name), to="orders")
    with Session(engine) as session, session.begin():
        with pytest.raises(InvalidEvent):
            outbox.add(session, event(kept, id=queued.id), to="orders")
        session.add(Order(name=kept))
        outbox.add(session, event(kept), to="orders")
    assert (orders(engine, kept), events(engine, kept)) == (1, 1)


FORK = """
import os, sys
from pillarbox.errors import UsedAfterFork
from pillarbox.outbox import Outbox
from sqlalchemy.orm import Session
from tests.integration.outbox.shop import event, open_engine

engine, name = open_engine(sys.argv[1]), sys.argv[2]
outbox = Outbox(engine)


def add():
    with Session(engine) as session, session.begin():
        outbox.add(session, event(name), to="orders")


def fork(work):
    if os.fork() == 0:
        work()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0


def careless():
    try:
        with Session(engine) as session, session.begin():
            outbox.add(session, event(name), to="orders")
    except UsedAfterFork as error:
        print(error, flush=True)
        return
    os._exit(1)


def careful():
    engine.dispose(close=False)
    add()


if sys.argv[3] == "used":
    add()
else:
    engine.connect().close()
fork(careless)
fork(careful)
add()  # on the connection that the careless child was refused
"""


@through("sqlite-pysqlite", "postgres-psycopg", "postgres-psycopg2", "mysql-pymysql")
def test_a_connection_used_before_a_fork_is_refused_in_the_child_and_goes_on_in_the_parent(engine: Engine) -> None:
    check_fork(engine, "used")


@through("mysql-pymysql")
def test_a_connection_only_opened_before_a_fork_is_refused_in_the_child(engine: Engine) -> None:
    check_fork(engine, "only opened")


def check_fork(engine: Engine, before: str) -> None:
    name = new_name()
    url = engine.url.render_as_string(False)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORK), url, name, before],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "[PB-028]" in done.stdout
    assert events(engine, name) == (3 if before == "used" else 2)
