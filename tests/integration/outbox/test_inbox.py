"""Once per consumer and event: the mark commits with the handler's writes, and only its own key means "already"."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from pillarbox.errors import ForeignEngine, InvalidEvent, NoTransaction, SavepointTrap
from pillarbox.inbox import Inbox
from tests.integration.outbox.shop import SYNC, Order, installed, new_name, orders, through

SERVERS = [name for name in SYNC if not name.startswith("sqlite")]


def test_an_event_is_new_once_for_each_consumer_and_its_mark_rolls_back_with_the_handler(engine: Engine) -> None:
    stock, mail, name = Inbox("stock"), Inbox("mail", engine), new_name()
    with Session(engine) as session:
        assert stock.once(session, name)
        session.add(Order(name=name))
        session.rollback()
        assert stock.once(session, name)
        session.add(Order(name=name))
        session.commit()
        assert not stock.once(session, name)
        assert mail.once(session, name)
        session.commit()
    assert orders(engine, name) == 1


def test_after_already_the_transaction_can_go_on(engine: Engine) -> None:
    """C031: a conflict must not spoil the transaction, on PostgreSQL in particular."""
    inbox, name = Inbox("stock"), new_name()
    with Session(engine) as session, session.begin():
        assert inbox.once(session, name)
    with Session(engine) as session, session.begin():
        assert not inbox.once(session, name)
        session.add(Order(name=name))
    assert orders(engine, name) == 1


def test_names_compare_as_bytes_and_ids_may_be_uuids(engine: Engine) -> None:
    name = new_name()
    with engine.begin() as connection:
        assert [Inbox(one).once(connection, name) for one in ("a", "A", "á")] == [True] * 3
        assert Inbox("a").once(connection, name.upper())
        assert Inbox("a").once(connection, UUID(int=int.from_bytes(name.encode(), "big")))


@pytest.mark.parametrize("bad", ["", "x" * 101, "a\0", "a ", None, 5])
def test_a_consumer_or_event_id_that_cannot_be_stored_is_refused(bad: Any) -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(InvalidEvent):
        Inbox(bad).once(connection, "e")
    with engine.connect() as connection, pytest.raises(InvalidEvent):
        Inbox("stock").once(connection, bad)


def test_autocommit_and_other_engines_are_refused(engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection, pytest.raises(NoTransaction):
        Inbox("stock").once(connection, new_name())
    with create_engine("sqlite://").connect() as connection, pytest.raises(ForeignEngine):
        Inbox("stock", engine).once(connection, new_name())


def test_a_savepoint_that_sqlite_would_commit_alone_is_refused(shops: Any) -> None:
    plain = create_engine(shops.url("sqlite"))
    with Session(plain) as session, session.begin_nested(), pytest.raises(SavepointTrap, match="PB-024"):
        Inbox("stock").once(session, new_name())
    plain.dispose()


def test_only_the_conflict_of_exactly_that_key_means_already(database_url: str) -> None:
    with installed(database_url) as engine:
        with engine.begin() as connection:
            connection.execute(text("CREATE UNIQUE INDEX of_another ON inbox_event (event_id)"))
        with Session(engine) as session, session.begin():
            assert Inbox("stock").once(session, "e")
        with Session(engine) as session, pytest.raises(IntegrityError):
            Inbox("mail").once(session, "e")


@through(*SERVERS)
@pytest.mark.parametrize("commits", [True, False])
def test_a_second_consumer_waits_for_the_first_ones_outcome(engine: Engine, commits: bool) -> None:
    inbox, name, started = Inbox("stock"), new_name(), threading.Event()

    def second() -> bool:
        with Session(engine) as session, session.begin():
            started.set()
            return inbox.once(session, name)

    with ThreadPoolExecutor(1) as pool, Session(engine) as first:
        assert inbox.once(first, name)
        answer = pool.submit(second)
        started.wait(10)
        with pytest.raises(TimeoutError):
            answer.result(0.15)
        first.commit() if commits else first.rollback()
        assert answer.result(20) is not commits


@through(*SERVERS)
def test_neighbouring_marks_of_concurrent_consumers_do_not_deadlock(engine: Engine) -> None:
    """C042: no gap locks by reading first; each event is applied once, no transaction is chosen as a victim."""
    check_concurrent_marks(engine, "READ COMMITTED")


@through(*(name for name in SERVERS if not name.startswith("postgres")))  # which refuses to serialise them: 40001
def test_neighbouring_marks_do_not_deadlock_under_repeatable_read_either(engine: Engine) -> None:
    """C042: MySQL's default isolation."""
    check_concurrent_marks(engine, "REPEATABLE READ")


def check_concurrent_marks(engine: Engine, isolation: str) -> None:
    inbox, name = Inbox("stock"), new_name()
    own = engine.execution_options(isolation_level=isolation)
    ids = [f"{name}-{number:03}" for number in range(60)]

    def consume(offset: int) -> int:
        applied = 0
        for place in range(len(ids)):
            event_id = ids[(place * 7 + offset) % len(ids)]  # all the same events, each thread in its own order
            with Session(own) as session, session.begin():
                if inbox.once(session, event_id):
                    applied += 1
                    session.add(Order(name=name))
        return applied

    assert sum(in_threads(4, consume)) == len(ids)
    assert orders(engine, name) == len(ids)


def in_threads(count: int, work: Callable[[int], int]) -> list[int]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))
