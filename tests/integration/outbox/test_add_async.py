"""The same promise through AsyncSession, async_scoped_session and AsyncConnection, on each asynchronous driver."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)

from pillarbox.errors import NotAwaited, PillarboxError, SessionClosed, WrongColour
from pillarbox.inbox import AsyncInbox, Inbox
from pillarbox.outbox import AsyncOutbox, Outbox
from tests.integration.outbox.shop import Order, events, insert_order, new_name, orders, with_driver
from tests.integration.outbox.shop import event as order_created

Caller = Callable[[AsyncEngine], AbstractAsyncContextManager["Any"]]


@asynccontextmanager
async def an_async_session(engine: AsyncEngine) -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine) as session:
        yield session


@asynccontextmanager
async def an_async_scoped_session(engine: AsyncEngine) -> AsyncIterator[async_scoped_session[AsyncSession]]:
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    yield session
    await session.remove()


@asynccontextmanager
async def an_async_connection(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    async with engine.connect() as connection:
        yield connection


CALLERS = [an_async_session, an_async_scoped_session, an_async_connection]


async def save(caller: Any, name: str) -> None:
    if isinstance(caller, AsyncConnection):
        await caller.run_sync(insert_order, name)
    else:
        caller.add(Order(name=name))
        await caller.flush()


def run(engine: AsyncEngine, story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await story()
        finally:
            await engine.dispose()

    asyncio.run(whole())


@pytest.mark.parametrize(("calling", "bound"), [*((one, True) for one in CALLERS), (an_async_session, False)])
def test_after_a_commit_both_rows_exist_and_after_a_rollback_neither(
    async_engine: AsyncEngine, reader: Engine, bound: bool, calling: Caller
) -> None:
    outbox = AsyncOutbox(async_engine if bound else None)
    kept, undone = new_name(), new_name()

    async def story() -> None:
        async with calling(async_engine) as caller:
            await save(caller, kept)
            await outbox.add(caller, order_created(kept), to="orders")
            await caller.commit()
            await save(caller, undone)
            await outbox.add_all(caller, [order_created(undone)], to="orders")
            await caller.rollback()

    run(async_engine, story)
    assert (orders(reader, kept), events(reader, kept)) == (1, 1)
    assert (orders(reader, undone), events(reader, undone)) == (0, 0)


@pytest.mark.parametrize("calling", CALLERS)
def test_rolling_back_a_savepoint_removes_its_events(
    async_engine: AsyncEngine, reader: Engine, calling: Caller
) -> None:
    """C081: an event exists exactly if its enclosing (sub)transaction committed."""
    outbox = AsyncOutbox(async_engine)
    inside, after = new_name(), new_name()

    async def story() -> None:
        async with calling(async_engine) as caller:
            savepoint = await caller.begin_nested()
            await outbox.add(caller, order_created(inside), to="orders")
            await savepoint.rollback()
            await outbox.add(caller, order_created(after), to="orders")
            await caller.commit()

    run(async_engine, story)
    assert (events(reader, inside), events(reader, after)) == (0, 1)


def test_many_events_at_once_and_a_task_of_its_own(async_engine: AsyncEngine, reader: Engine) -> None:
    outbox = AsyncOutbox(async_engine)
    names = [new_name() for _ in range(20)]

    async def story() -> None:
        async with AsyncSession(async_engine) as session, session.begin():
            await outbox.add_all(session, map(order_created, names[1:]), to="orders")
            await asyncio.create_task(outbox.add(session, order_created(names[0]), to="orders"))

    run(async_engine, story)
    assert [events(reader, name) for name in names] == [1] * 20


def test_adds_side_by_side_on_one_session_do_not_mix_up_their_rows(async_engine: AsyncEngine, reader: Engine) -> None:
    """SQLAlchemy advises against it, and drivers let it pass: then nothing may be lost."""
    outbox = AsyncOutbox(async_engine)
    names = [new_name() for _ in range(5)]

    async def story() -> None:
        async with AsyncSession(async_engine) as session, session.begin():
            await outbox.add(session, order_created(names[0]), to="orders")
            await asyncio.gather(*(outbox.add(session, order_created(name), to="orders") for name in names[1:]))

    run(async_engine, story)
    assert [events(reader, name) for name in names] == [1] * 5


def test_an_add_forgotten_without_a_transaction_does_not_meet_the_connections_next_user(shops: Any) -> None:
    engine = create_async_engine(with_driver(shops.url("sqlite"), "sqlite+aiosqlite"), pool_size=1, max_overflow=0)
    outbox = AsyncOutbox(engine)

    async def story() -> None:
        async with engine.connect() as connection:
            outbox.add(connection, order_created(new_name()), to="orders")
        async with engine.begin() as connection:
            await connection.run_sync(insert_order, new_name())

    run(engine, story)


@pytest.mark.parametrize("calling", CALLERS)
def test_an_add_that_nobody_awaited_fails_the_commit_and_nothing_is_committed(
    async_engine: AsyncEngine, reader: Engine, calling: Caller
) -> None:
    outbox = AsyncOutbox(async_engine)
    name, later = new_name(), new_name()

    async def story() -> None:
        async with calling(async_engine) as caller:
            await save(caller, name)
            outbox.add(caller, order_created(name), to="orders")
            with pytest.raises(NotAwaited, match=r"PB-026.*add\(\).*Fix: Write `await"):
                await caller.commit()
            await caller.rollback()
            await outbox.add(caller, order_created(later), to="orders")
            await caller.commit()

    run(async_engine, story)
    assert (orders(reader, name), events(reader, name), events(reader, later)) == (0, 0, 1)


def test_an_add_that_nobody_awaited_fails_the_commit_of_a_session_that_did_nothing_else(
    async_engine: AsyncEngine,
) -> None:
    async def story() -> None:
        with pytest.raises(NotAwaited):
            async with AsyncSession(async_engine) as session, session.begin():
                AsyncOutbox(async_engine).add_all(session, [order_created("x")], to="orders")

    run(async_engine, story)


def test_an_add_that_was_awaited_and_failed_is_not_pending(async_engine: AsyncEngine) -> None:
    async def story() -> None:
        async with AsyncSession(async_engine) as session, session.begin():
            with pytest.raises(PillarboxError, match="PB-014"):
                await AsyncOutbox(async_engine).add(session, order_created("x"))

    run(async_engine, story)


def test_a_forgotten_add_does_not_outlive_the_rollback(async_engine: AsyncEngine, reader: Engine) -> None:
    outbox = AsyncOutbox(async_engine)
    name = new_name()

    async def story() -> None:
        async with AsyncSession(async_engine) as session:
            await session.begin()
            outbox.add(session, order_created(name), to="orders")
            await session.rollback()
            await outbox.add(session, order_created(name), to="orders")
            await session.commit()

    run(async_engine, story)
    assert events(reader, name) == 1


def test_the_wrong_class_for_the_session_names_the_right_one_at_the_call(async_engine: AsyncEngine) -> None:
    async def story() -> None:
        async with AsyncSession(async_engine) as session:
            with pytest.raises(WrongColour, match=r"PB-027.*Outbox takes a Session.*got AsyncSession.*Use AsyncOutbox"):
                Outbox().add(session, order_created("x"), to="orders")  # type: ignore[arg-type]
            with pytest.raises(WrongColour, match=r"AsyncOutbox takes an AsyncSession.*got Session.*Use Outbox"):
                AsyncOutbox().add(session.sync_session, order_created("x"), to="orders")  # type: ignore[arg-type]
            with pytest.raises(WrongColour, match=r"Use AsyncInbox"):
                Inbox("stock").once(session, "e")  # type: ignore[arg-type]
            with pytest.raises(WrongColour, match=r"Use Inbox"):
                AsyncInbox("stock").once(session.sync_session, "e")  # type: ignore[arg-type]

    run(async_engine, story)


def test_inside_run_sync_the_session_is_a_sync_one(async_engine: AsyncEngine, reader: Engine) -> None:
    name = new_name()

    async def story() -> None:
        async with AsyncSession(async_engine) as session, session.begin():
            await session.run_sync(lambda sync: Outbox(async_engine).add(sync, order_created(name), to="orders"))

    run(async_engine, story)
    assert events(reader, name) == 1


def test_a_closed_async_connection_is_refused(async_engine: AsyncEngine) -> None:
    async def story() -> None:
        connection = async_engine.connect()
        with pytest.raises(SessionClosed, match="PB-022"):
            AsyncOutbox().add(connection, order_created("x"), to="orders")
        await connection.start()
        await connection.close()
        with pytest.raises(SessionClosed, match="PB-022"):
            AsyncOutbox().add(connection, order_created("x"), to="orders")

    run(async_engine, story)


def test_the_inbox_marks_once(async_engine: AsyncEngine) -> None:
    inbox, name = AsyncInbox("stock"), new_name()
    answers: list[bool] = []

    async def story() -> None:
        async with AsyncSession(async_engine) as session:
            for _ in range(2):
                answers.append(await inbox.once(session, name))
                await session.commit()
            answers.append(await AsyncInbox("mail").once(session, name))
            await session.rollback()
            answers.append(await AsyncInbox("mail").once(session, name))
            inbox.once(session, "another")
            with pytest.raises(NotAwaited, match=r"once\(\)"):
                await session.commit()

    run(async_engine, story)
    assert answers == [True, False, True, True]


@pytest.mark.parametrize(("sync", "other"), [(Outbox, AsyncOutbox), (Inbox, AsyncInbox)])
def test_the_two_colours_have_the_same_methods_and_parameters(sync: type, other: type) -> None:
    def shape(of: type) -> dict[str, list[tuple[str, Any, Any]]]:
        methods = {name: method for name, method in vars(of).items() if not name.startswith("_") or name == "__init__"}
        return {
            name: [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]
            for name, method in methods.items()
        }

    assert shape(sync) == shape(other)
