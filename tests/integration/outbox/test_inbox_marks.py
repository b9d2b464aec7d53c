"""Marks in batches, and marks under every isolation: a new id is told once, whoever else is at work."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.event import listen
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from pillarbox.errors import InvalidEvent, NotAwaited
from pillarbox.inbox import KEY_MARK, AsyncInbox, Inbox
from pillarbox.store.inbox import ROWS, mark, mark_many
from tests.integration.outbox.shop import SYNC, Order, installed, new_name, orders, through

SERVERS = [name for name in SYNC if not name.startswith("sqlite")]
ISOLATIONS = ["READ COMMITTED", "REPEATABLE READ"]


def test_a_batch_tells_which_of_its_ids_are_new(engine: Engine) -> None:
    name = new_name()
    ids = [f"{name}-{number:04}" for number in range(ROWS + 50)]  # more than one statement
    old = {*ids[3:30:3], ids[-1]}
    with engine.begin() as connection:
        assert mark_many(connection, "stock", old) == old
    with engine.begin() as connection:
        assert mark_many(connection, "stock", [*ids, *ids[:5]]) == {*ids} - old
        assert mark_many(connection, "stock", ids) == set()
        assert mark_many(connection, "stock", []) == set()
        assert mark_many(connection, "mail", ids[:5]) == {*ids[:5]}
    with engine.begin() as connection:
        assert mark_many(connection, "stock", ids) == set()


def test_marks_of_a_batch_roll_back_with_it_and_the_transaction_goes_on_after_duplicates(engine: Engine) -> None:
    name = new_name()
    ids = [f"{name}-{number}" for number in range(10)]
    with engine.begin() as connection:
        mark(connection, "stock", ids[4])
    with Session(engine) as session:
        assert mark_many(session.connection(), "stock", ids) == {*ids} - {ids[4]}
        session.add(Order(name=name))
        session.rollback()
        assert mark_many(session.connection(), "stock", ids) == {*ids} - {ids[4]}
        session.add(Order(name=name))
        session.commit()
    assert orders(engine, name) == 1


def test_a_batch_with_an_id_that_cannot_be_held_marks_nothing(engine: Engine) -> None:
    name = new_name()
    with engine.begin() as connection:
        with pytest.raises(InvalidEvent):
            mark_many(connection, "stock", [name, f"{name} "])
        assert mark(connection, "stock", name)


def test_only_the_conflict_of_exactly_that_key_makes_an_id_of_a_batch_old(database_url: str) -> None:
    with installed(database_url) as engine:
        with engine.begin() as connection:
            connection.execute(text("CREATE UNIQUE INDEX of_another ON inbox_event (event_id)"))
            mark(connection, "stock", "e")
        with engine.connect() as connection, pytest.raises(IntegrityError):
            mark_many(connection, "mail", ["d", "e"])


@through(*SERVERS)
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("batch", [True, False])
def test_of_two_consumers_with_the_same_event_one_waits_and_then_sees_it(
    engine: Engine, isolation: str, commits: bool, batch: bool
) -> None:
    """C042, at both levels: the second one's snapshot is older than the first one's commit."""
    own, name, started = engine.execution_options(isolation_level=isolation), new_name(), threading.Event()
    ids = [f"{name}-{letter}" for letter in "abc"]

    def second() -> bool:
        with Session(own) as session, session.begin():
            session.execute(text("SELECT count(*) FROM inbox_event"))  # takes the snapshot
            started.set()
            if batch:
                new = mark_many(session.connection(), "stock", ids)
                assert new == ({*ids} if not commits else {ids[0], ids[2]})
                first_here = ids[1] in new
            else:
                first_here = Inbox("stock").once(session, ids[1])
            session.add(Order(name=name))  # the transaction goes on, whatever the answer was
            return first_here

    with ThreadPoolExecutor(1) as pool, Session(own) as first:
        assert Inbox("stock").once(first, ids[1])
        answer = pool.submit(second)
        assert started.wait(10)
        with pytest.raises(TimeoutError):
            answer.result(0.15)
        first.commit() if commits else first.rollback()
        assert answer.result(20) is not commits
    assert orders(engine, name) == 1


@through(*SERVERS)
def test_batches_of_consumers_that_have_the_same_events_do_not_deadlock(engine: Engine) -> None:
    name, together = new_name(), threading.Barrier(2)
    ids = [f"{name}-{number:03}" for number in range(60)]

    def consume(thread: int) -> int:
        found = 0
        for start in range(0, len(ids), 20):
            together.wait(10)
            with Session(own) as session, session.begin():
                batch = ids[start : start + 20]
                found += len(mark_many(session.connection(), "stock", batch if thread else batch[::-1]))
        return found

    own = engine.execution_options(isolation_level="READ COMMITTED")
    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(consume, range(2))) == len(ids)


def test_a_business_key_is_marked_beside_event_ids_and_never_meets_one(engine: Engine) -> None:
    inbox, name = Inbox("stock"), new_name()
    with Session(engine) as session, session.begin():
        assert inbox.once(session, name)
        assert inbox.once_by_key(session, name)
        assert not inbox.once_by_key(session, name)
        assert Inbox("mail").once_by_key(session, name)
        assert inbox.once_by_key(session, "x" * (99 - len(name)) + name)
    with Session(engine) as session:
        assert not inbox.once_by_key(session, name)
        for key in ("", "x" * 100, "a\0", "a "):
            with pytest.raises(InvalidEvent):
                inbox.once_by_key(session, key)
        with pytest.raises(InvalidEvent, match="marks business keys"):
            inbox.once(session, KEY_MARK + name)
        with pytest.raises(InvalidEvent, match="marks business keys"):
            inbox.once_each(session, [name, KEY_MARK + name])


def test_many_ids_come_back_as_they_were_given_and_in_their_order(engine: Engine) -> None:
    inbox, old, ids = Inbox("stock"), new_name(), [uuid4() for _ in range(5)]
    with Session(engine) as session, session.begin():
        assert inbox.once(session, ids[3])
        assert inbox.once_each(session, [ids[4], ids[3], ids[0], ids[4]]) == [ids[4], ids[0]]
        assert inbox.once_each(session, (str(one) for one in ids)) == [str(ids[1]), str(ids[2])]
        assert inbox.once_each(session, []) == []
        assert inbox.once(session, old)


def test_the_mark_comes_before_what_waits_in_the_session(engine: Engine) -> None:
    """Neither the order nor the errors of an ORM flush decide about the mark."""
    name, inbox = new_name(), Inbox("stock")
    statements: list[str] = []
    listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2].split(" (")[0]))
    with Session(engine) as session, session.begin():
        order = Order(name=name)
        session.add(order)
        assert inbox.once(session, f"{name}-a")
        assert inbox.once_each(session, [f"{name}-b"]) == [f"{name}-b"]
        assert order.id is None
    marks = [place for place, sql in enumerate(statements) if sql == "INSERT INTO inbox_event"]
    assert len(marks) == 2
    assert max(marks) < statements.index("INSERT INTO orders")


def test_a_duplicate_key_of_the_handlers_own_tables_is_no_duplicate_event(engine: Engine) -> None:
    name = new_name()
    with Session(engine) as session:
        session.add(Order(name=name))
        session.flush()
        taken = session.scalars(text("SELECT max(id) FROM orders")).one()
        assert Inbox("stock").once(session, name)
        session.execute(text("UPDATE orders SET name = name WHERE id = :id"), {"id": taken})
        session.expunge_all()
        session.add(Order(id=taken, name=name))
        with pytest.raises(IntegrityError):
            session.flush()
        session.rollback()
        assert Inbox("stock").once(session, name)
        session.commit()


@through("sqlite-aiosqlite", "postgres-asyncpg", "postgres-psycopg", "mysql-aiomysql", fixture="async_engine")
def test_async_sessions_mark_by_key_and_in_batches_too(async_engine: AsyncEngine) -> None:
    name = new_name()

    async def consume() -> None:
        inbox = AsyncInbox("stock")
        async with AsyncSession(async_engine) as session, session.begin():
            assert await inbox.once_by_key(session, name)
            assert not await inbox.once_by_key(session, name)
            assert await inbox.once_each(session, [f"{name}-1", name]) == [f"{name}-1", name]
            assert await inbox.once_each(session, [f"{name}-1", f"{name}-2"]) == [f"{name}-2"]
        async with AsyncSession(async_engine) as session:
            forgotten = inbox.once_each(session, [f"{name}-3"])
            with pytest.raises(NotAwaited, match=r"once_each\(\)"):
                await session.commit()
            forgotten.close()

    asyncio.run(consume())


@through("postgres-asyncpg", "postgres-psycopg", fixture="async_engine")
def test_the_constraint_is_recognised_by_its_name_through_async_drivers_too(async_engine: AsyncEngine) -> None:
    name = new_name()

    async def consume() -> None:
        async with AsyncSession(async_engine) as first, first.begin():
            assert await AsyncInbox("stock").once(first, name)
        own = async_engine.execution_options(isolation_level="REPEATABLE READ")
        async with AsyncSession(own) as second, second.begin():
            await second.execute(text("SELECT 1 FROM inbox_event LIMIT 1"))
            async with AsyncSession(async_engine) as other, other.begin():
                assert await AsyncInbox("stock").once(other, f"{name}-2")
            assert not await AsyncInbox("stock").once(second, f"{name}-2")  # younger than the snapshot
            assert await AsyncInbox("stock").once_each(second, [name, f"{name}-2", f"{name}-3"]) == [f"{name}-3"]

    asyncio.run(consume())
