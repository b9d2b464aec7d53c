"""after_commit: once after the outermost commit, never without one, and never in the way of the caller."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.orm.session import JoinTransactionMode

from pillarbox import after_commit, sqlite_engine
from pillarbox.errors import ConfigError, WrongColour
from tests.integration.outbox.shop import Order, new_name, orders, through

SYNC = through("sqlite-pysqlite", "postgres-psycopg", "mysql-pymysql")
ASYNC = through("sqlite-aiosqlite", "postgres-asyncpg", "mysql-aiomysql", fixture="async_engine")


@SYNC
def test_a_hook_runs_once_after_the_commit_and_sees_what_was_committed(engine: Engine) -> None:
    name, seen = new_name(), list[int]()
    with Session(engine) as session:
        session.add(Order(name=name))
        session.flush()
        assert after_commit(session, lambda: seen.append(orders(engine, name)))
        assert seen == []
        session.commit()
        assert seen == [1]
        session.add(Order(name=name))
        session.commit()  # the session is used again: its next commit is not this hook's
    assert seen == [1]


@SYNC
def test_hooks_run_in_their_order_and_belong_to_one_transaction_each(engine: Engine) -> None:
    seen: list[str] = []
    with Session(engine) as session:
        for round_ in ("first", "second"):
            session.add(Order(name=new_name()))
            after_commit(session, lambda r=round_: seen.append(f"{r} a"))  # type: ignore[misc]
            after_commit(session, lambda r=round_: seen.append(f"{r} b"))  # type: ignore[misc]
            session.commit()
    assert seen == ["first a", "first b", "second a", "second b"]


@SYNC
@pytest.mark.parametrize("ending", ["rollback", "close", "exception", "failed flush"])
def test_a_hook_does_not_run_when_the_transaction_does_not_commit(engine: Engine, ending: str) -> None:
    seen: list[str] = []
    with Session(engine) as session:
        session.add(Order(name=new_name()))
        session.flush()
        after_commit(session, lambda: seen.append("ran"))
        if ending == "rollback":
            session.rollback()
        elif ending == "close":
            session.close()
        elif ending == "exception":
            with pytest.raises(RuntimeError), session:
                raise RuntimeError
        else:
            session.add(Order(name=None))
            with pytest.raises(IntegrityError):
                session.commit()
            session.rollback()
        session.add(Order(name=new_name()))
        session.commit()
    assert seen == []


@SYNC
def test_a_savepoint_takes_its_hooks_along_when_it_rolls_back_and_leaves_them_when_it_is_released(
    engine: Engine,
) -> None:
    seen: list[str] = []

    def hook(name: str) -> None:
        after_commit(session, lambda: seen.append(name))

    with Session(engine) as session:
        session.add(Order(name=new_name()))
        hook("before")
        with session.begin_nested():
            hook("released")
            with session.begin_nested() as inner:
                hook("undone")
                inner.rollback()
        with session.begin_nested() as outer:
            hook("undone with the outer one")
            with session.begin_nested():
                hook("released within what is undone")
            session.begin_nested()
            hook("still open within what is undone")
            outer.rollback()
        savepoint = session.begin_nested()
        hook("undone by an error")
        session.add(Order(name=None))
        with pytest.raises(IntegrityError):
            session.flush()
        savepoint.rollback()
        hook("after")
        assert seen == []
        session.commit()
    assert seen == ["before", "released", "after"]


@SYNC
def test_the_error_of_a_hook_is_logged_and_disturbs_neither_the_caller_nor_the_next_hook(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    name, seen = new_name(), list[str]()

    def broken() -> None:
        raise RuntimeError("the cache is away")

    with Session(engine) as session, session.begin():
        session.add(Order(name=name))
        after_commit(session, broken)
        after_commit(session, lambda: seen.append("next"))
    assert (orders(engine, name), seen) == (1, ["next"])
    assert "the cache is away" in caplog.text
    assert "broken" in caplog.text


@SYNC
def test_without_a_transaction_a_hook_is_not_called_unless_it_was_asked_for(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    with Session(engine) as session:
        assert not after_commit(session, lambda: seen.append("skipped"))
        assert "is not called" in caplog.text
        assert not after_commit(session, lambda: seen.append("run"), fallback="run")
        assert seen == ["run"]
        session.add(Order(name=new_name()))
        session.commit()
    assert seen == ["run"]


@SYNC
def test_a_session_that_joined_anothers_transaction_has_no_last_word(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    with engine.connect() as connection:
        modes: list[JoinTransactionMode] = ["create_savepoint", "control_fully", "rollback_only"]
        for mode in modes:
            outer = connection.begin()
            with Session(connection, join_transaction_mode=mode) as session:
                session.execute(text("SELECT 1"))
                after_commit(session, lambda m=mode: seen.append(m))  # type: ignore[misc]
                session.commit()
            if outer.is_active:
                outer.rollback()
        assert seen == ["control_fully"]  # there the session's commit is the connection's
        assert "its connection is in a transaction" in caplog.text
        with Session(connection) as session:
            session.execute(text("SELECT 1"))
            after_commit(session, lambda: seen.append("its own"))
            session.commit()
    assert seen[1:] == ["its own"]


@SYNC
def test_a_hook_may_register_nothing_for_the_transaction_that_is_over(engine: Engine) -> None:
    seen: list[bool] = []
    with Session(engine) as session, session.begin():
        session.add(Order(name=new_name()))
        after_commit(session, lambda: seen.append(after_commit(session, lambda: seen.append(True))))
    assert seen == [False]


@SYNC
def test_a_scoped_session_and_one_without_autobegin_are_sessions_too(engine: Engine) -> None:
    seen: list[str] = []
    scoped = scoped_session(sessionmaker(engine))
    scoped.add(Order(name=new_name()))
    scoped.flush()
    after_commit(scoped, lambda: seen.append("scoped"))
    scoped.commit()
    scoped.remove()
    with Session(engine, autobegin=False) as session:
        assert not after_commit(session, lambda: seen.append("never"))
        with session.begin():
            after_commit(session, lambda: seen.append("begun"))
    assert seen == ["scoped", "begun"]


@ASYNC
def test_an_async_hook_is_awaited_within_the_commit(async_engine: AsyncEngine, reader: Engine) -> None:
    name, seen = new_name(), list[int]()

    async def count() -> None:
        async with AsyncSession(async_engine) as other:
            found = await other.execute(text("SELECT count(*) FROM orders WHERE name = :n"), {"n": name})
            seen.append(found.scalar_one())

    async def sell() -> None:
        async with async_sessionmaker(async_engine)() as session:
            session.add(Order(name=name))
            await session.flush()
            after_commit(session, count)
            after_commit(session, lambda: seen.append(orders(reader, name)))
            await session.commit()

    asyncio.run(sell())
    assert seen == [1, 1]


@ASYNC
def test_async_sessions_roll_back_close_and_nest_like_others(
    async_engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    async def broken() -> None:
        raise RuntimeError("the cache is away")

    async def sell() -> None:
        async with AsyncSession(async_engine) as session:
            assert not after_commit(session, broken)
            await insert("rolled back", session)
            await session.rollback()
            await insert("kept", session)
            after_commit(session, broken)
            async with session.begin_nested() as inner:
                await insert("undone", session)
                await inner.rollback()
            await session.commit()
            await insert("closed", session)

    async def insert(name: str, session: AsyncSession) -> None:
        session.add(Order(name=new_name()))
        await session.flush()
        after_commit(session, lambda: seen.append(name))

    asyncio.run(sell())
    assert seen == ["kept"]
    assert "the cache is away" in caplog.text


@SYNC
def test_what_is_no_session_and_what_nobody_would_await_is_refused(engine: Engine) -> None:
    async def later() -> None: ...

    wrong: Any = engine
    with pytest.raises(WrongColour):
        after_commit(wrong, print)
    with Session(engine) as session, pytest.raises(WrongColour):
        after_commit(session, later)
    with Session(engine) as session, pytest.raises(ConfigError):
        after_commit(session, print, fallback="perhaps")  # type: ignore[arg-type]
    with pytest.raises(WrongColour):
        after_commit(AsyncSession(), later, fallback="run")


def test_a_plain_function_that_returns_an_awaitable_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def later() -> None: ...

    caplog.set_level(logging.ERROR)
    with Session(sqlite_engine("sqlite://")) as session, session.begin():
        after_commit(session, lambda: later())
    assert "returned an awaitable" in caplog.text
