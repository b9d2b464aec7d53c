"""The business row and its event exist together or not at all: each kind of session, each server, each driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pillarbox.outbox import Outbox, Queued
from tests.integration.outbox.shop import Order, events, insert_order, new_name, orders
from tests.integration.outbox.shop import event as order_created

Caller = Callable[[Engine], AbstractContextManager["Any"]]


@contextmanager
def a_session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@contextmanager
def a_scoped_session(engine: Engine) -> Iterator[scoped_session[Session]]:
    session = scoped_session(sessionmaker(engine))
    yield session
    session.remove()


@contextmanager
def a_session_with_binds(engine: Engine) -> Iterator[Session]:
    with Session(binds={Order: engine}) as session:
        yield session


@contextmanager
def a_connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        yield connection


@contextmanager
def a_session_on_a_connection(engine: Engine) -> Iterator[Session]:
    with engine.connect() as connection, Session(connection) as session:
        yield session


CALLERS = [a_session, a_scoped_session, a_session_with_binds, a_connection, a_session_on_a_connection]


def save(caller: Any, name: str) -> None:
    if isinstance(caller, Connection):
        insert_order(caller, name)
    else:
        caller.add(Order(name=name))
        caller.flush()


@pytest.fixture
def outbox(engine: Engine) -> Outbox:
    return Outbox(engine)


@pytest.mark.parametrize(("calling", "bound"), [*((one, True) for one in CALLERS), (a_session, False)])
def test_after_a_commit_both_rows_exist_and_after_a_rollback_neither(
    engine: Engine, bound: bool, calling: Caller
) -> None:
    outbox = Outbox(engine if bound else None)
    kept, undone = new_name(), new_name()
    with calling(engine) as caller:
        save(caller, kept)
        outbox.add(caller, order_created(kept), to="orders")
        caller.commit()
        save(caller, undone)
        outbox.add(caller, order_created(undone), to="orders")
        caller.rollback()
    assert (orders(engine, kept), events(engine, kept)) == (1, 1)
    assert (orders(engine, undone), events(engine, undone)) == (0, 0)


@pytest.mark.parametrize("calling", CALLERS)
def test_add_begins_the_transaction_and_after_a_commit_it_belongs_to_the_next_one(
    engine: Engine, outbox: Outbox, calling: Caller
) -> None:
    first, second = new_name(), new_name()
    with calling(engine) as caller:
        outbox.add(caller, order_created(first), to="orders")
        caller.commit()
        outbox.add(caller, order_created(second), to="orders")
        assert events(engine, first) == 1
    assert (events(engine, first), events(engine, second)) == (1, 0)


@pytest.mark.parametrize("calling", CALLERS)
def test_rolling_back_a_savepoint_removes_its_events_and_no_others(
    engine: Engine, outbox: Outbox, calling: Caller
) -> None:
    """C081: an event exists exactly if its enclosing (sub)transaction committed."""
    before, inside, nested, after = (new_name() for _ in range(4))
    with calling(engine) as caller:
        outbox.add(caller, order_created(before), to="orders")
        savepoint = caller.begin_nested()
        outbox.add(caller, order_created(inside), to="orders")
        inner = caller.begin_nested()
        outbox.add(caller, order_created(nested), to="orders")
        inner.commit()
        savepoint.rollback()
        with caller.begin_nested():
            outbox.add(caller, order_created(after), to="orders")
        caller.commit()
    assert [events(engine, name) for name in (before, inside, nested, after)] == [1, 0, 0, 1]


def test_an_event_added_between_two_flushes_and_after_them_is_kept(engine: Engine, outbox: Outbox) -> None:
    """C008: a second flush in one unit of work brings its events along."""
    names = [new_name() for _ in range(3)]
    with Session(engine) as session:
        for name in names:
            session.add(Order(name=name))
            session.flush()
            outbox.add(session, order_created(name), to="orders")
        session.flush()
        session.commit()
    assert [events(engine, name) for name in names] == [1, 1, 1]


def test_add_returns_the_id_that_is_stored(engine: Engine, outbox: Outbox) -> None:
    name = new_name()
    own = UUID(int=int.from_bytes(name.encode(), "big"))
    with engine.begin() as connection:
        made = outbox.add(connection, order_created(name), to="orders")
        given = outbox.add(connection, order_created(name, id=own), to="orders")
    stored = "SELECT event_id FROM outbox_event WHERE aggregate_id = :name ORDER BY id"
    with engine.connect() as connection:
        ids = connection.execute(text(stored), {"name": name}).scalars().all()
    assert ids == [str(made.id), str(own)]
    assert given == Queued(own)
    assert made.id.version == 7


def test_many_events_keep_the_order_of_the_list_with_a_constant_number_of_statements(
    engine: Engine, outbox: Outbox
) -> None:
    names = [new_name() for _ in range(500)]
    with engine.begin() as connection:
        outbox.add(connection, order_created(new_name()), to="orders")
        for few_or_many in (names[:3], names[3:]):
            with counting(engine) as statements:
                outbox.add_all(connection, map(order_created, few_or_many), to=["orders", "audit"])
            assert len(statements) <= 3
    stored = (
        "SELECT e.aggregate_id, count(*) FROM outbox_event e JOIN outbox_ready r ON r.id = e.id "
        "WHERE e.id >= (SELECT id FROM outbox_event WHERE aggregate_id = :first) "
        "GROUP BY e.id, e.aggregate_id ORDER BY e.id"
    )
    with engine.connect() as connection:
        found = connection.execute(text(stored), {"first": names[0]}).all()
    assert [tuple(row) for row in found] == [(name, 2) for name in names]


def test_one_event_takes_one_statement_on_postgresql_and_two_elsewhere(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as connection:
        outbox.add(connection, order_created(new_name()), to="orders")
        with counting(engine) as statements:
            outbox.add(connection, order_created(new_name()), to="orders")
    assert len(statements) == (1 if engine.dialect.name == "postgresql" else 2)


def test_a_listener_that_inserts_after_each_insert_does_not_lead_the_delivery_astray(engine: Engine) -> None:
    """As audit tables do: the connection's last id is not the event's any more."""

    def audit(connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("INSERT INTO outbox_event"):
            insert_order(connection, "audited")

    name = new_name()
    event.listen(engine, "after_cursor_execute", audit)
    with engine.begin() as connection:
        for _ in range(2):
            insert_order(connection, new_name())
        Outbox(engine).add(connection, order_created(name), to="orders")
    assert events(engine, name) == 1


def test_an_empty_list_writes_nothing(engine: Engine, outbox: Outbox) -> None:
    with engine.begin() as connection:
        assert outbox.add_all(connection, [], to="orders") == []


def test_copies_of_the_engine_with_other_options_are_the_same_engine(engine: Engine) -> None:
    name = new_name()
    outbox = Outbox(engine.execution_options(logging_token="copy"))
    with Session(engine.execution_options(logging_token="other")) as session, session.begin():
        outbox.add(session, order_created(name), to="orders")
    assert events(engine, name) == 1


@contextmanager
def counting(engine: Engine) -> Iterator[list[str]]:
    statements: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", count)
    yield statements
    event.remove(engine, "before_cursor_execute", count)
