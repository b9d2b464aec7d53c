"""Marks in batches, and marks under every isolation: a new id is told once, whoever else is at work."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from pillarbox.errors import InvalidEvent
from pillarbox.inbox import Inbox
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
