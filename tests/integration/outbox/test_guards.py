"""What add refuses, on each server and driver: every way to store an event apart from its business row."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, create_engine, select, text
from sqlalchemy.event import listen, remove
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from pillarbox.errors import (
    AddFailed,
    ForeignEngine,
    ImplicitCommit,
    InvalidEvent,
    NoTransaction,
    PillarboxWarning,
    SavepointTrap,
    SchemaMismatch,
    SessionClosed,
    TablesMissing,
    TransactionTooLarge,
    WrongColour,
)
from pillarbox.event.event import Event
from pillarbox.outbox import AsyncOutbox, Outbox
from tests.integration.outbox.shop import SYNC, Base, Order, events, insert_order, installed, new_name, orders, through
from tests.integration.outbox.shop import event as order_created

MYSQL = ("mysql", "mariadb")


# AUTOCOMMIT -------------------------------------------------------------------------------------------------------


def test_autocommit_by_option_is_refused(engine: Engine) -> None:
    name = new_name()
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(NoTransaction, match="PB-020"),
    ):
        Outbox(engine).add(connection, order_created(name), to="orders")
    assert events(engine, name) == 0


def test_autocommit_of_a_session_is_refused(engine: Engine) -> None:
    name = new_name()
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session, pytest.raises(NoTransaction):
        Outbox(engine).add(session, order_created(name), to="orders")
    assert events(engine, name) == 0


def test_autocommit_by_engine_is_refused(engine: Engine) -> None:
    autocommit = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    name = new_name()
    with autocommit.connect() as connection, pytest.raises(NoTransaction):
        Outbox().add(connection, order_created(name), to="orders")
    autocommit.dispose()
    assert events(engine, name) == 0


def test_autocommit_by_engine_is_refused_inside_a_savepoint_of_sqlite_too(shops: Any) -> None:
    autocommit = create_engine(shops.url("sqlite"), isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection, connection.begin_nested(), pytest.raises(NoTransaction):
        Outbox().add(connection, order_created("x"), to="orders")
    autocommit.dispose()


def test_autocommit_by_driver_is_refused(engine: Engine) -> None:
    def switch_on(connection: Any) -> None:
        if engine.dialect.name == "sqlite":
            connection.isolation_level = None
        elif engine.dialect.name in MYSQL:
            connection.autocommit(True)
        else:
            connection.autocommit = True

    plain = create_engine(engine.url)
    name = new_name()
    with plain.connect() as connection:
        switch_on(connection.connection.dbapi_connection)
        with pytest.raises(NoTransaction):
            Outbox().add(connection, order_created(name), to="orders")
        connection.invalidate()
    plain.dispose()
    assert events(engine, name) == 0


def test_autocommit_of_an_async_connection_is_refused(async_engine: AsyncEngine, reader: Engine) -> None:
    name = new_name()

    async def story() -> None:
        async with async_engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(NoTransaction):
                await AsyncOutbox(async_engine).add(connection, order_created(name), to="orders")
        await async_engine.dispose()

    asyncio.run(story())
    assert events(reader, name) == 0


# Engines ----------------------------------------------------------------------------------------------------------


def test_another_engine_than_the_bound_one_is_refused_also_for_the_same_database(engine: Engine) -> None:
    other = create_engine(engine.url)
    outbox = Outbox(engine)
    with Session(other) as session, pytest.raises(ForeignEngine, match="PB-021"):
        outbox.add(session, order_created("x"), to="orders")
    with other.connect() as connection, pytest.raises(ForeignEngine):
        outbox.add(connection, order_created("x"), to="orders")
    with Session(binds={Order: other}) as session, pytest.raises(ForeignEngine):
        outbox.add(session, order_created("x"), to="orders")
    name = new_name()
    with Session(other) as session, session.begin():
        Outbox().add(session, order_created(name), to="orders")
    other.dispose()
    assert events(engine, name) == 1


def test_a_session_of_several_engines_needs_a_bound_outbox_and_writes_there(engine: Engine) -> None:
    elsewhere = Table("elsewhere", MetaData(), Column("id", Integer))
    other, name = create_engine("sqlite://"), new_name()
    with Session(binds={Order: engine, elsewhere: other}) as session, session.begin():
        with pytest.raises(ForeignEngine, match=r"several engines.*Outbox\(bind=engine\)"):
            Outbox().add(session, order_created(name), to="orders")
        session.add(Order(name=name))
        Outbox(engine).add(session, order_created(name), to="orders")
    assert (orders(engine, name), events(engine, name)) == (1, 1)


def test_a_session_that_chooses_its_engine_itself_is_asked_for_the_one_of_an_insert(engine: Engine) -> None:
    replica, name = create_engine("sqlite://"), new_name()

    class Routing(Session):
        def get_bind(self, *arguments: Any, clause: Any = None, **more: Any) -> Any:
            return engine if self._flushing or getattr(clause, "is_dml", False) else replica

    with Routing() as session, session.begin():
        session.add(Order(name=name))
        session.flush()
        Outbox().add(session, order_created(name), to="orders")
        Outbox(engine).add(session, order_created(name), to="orders")
        with pytest.raises(ForeignEngine):
            Outbox(replica).add(session, order_created(name), to="orders")
    assert events(engine, name) == 2


def test_an_engine_is_no_transaction_and_the_arguments_have_an_order(engine: Engine) -> None:
    with pytest.raises(NoTransaction, match="got an Engine"):
        Outbox().add(engine, order_created("x"), to="orders")  # type: ignore[arg-type]
    with pytest.raises(WrongColour, match="Pass the session, then the event"):
        Outbox().add(order_created("x"), order_created("x"), to="orders")  # type: ignore[arg-type]


# Closed -----------------------------------------------------------------------------------------------------------


def test_a_closed_session_or_connection_is_refused(engine: Engine) -> None:
    outbox = Outbox(engine)
    with Session(engine, close_resets_only=False) as session:
        outbox.add(session, order_created(new_name()), to="orders")
    with pytest.raises(SessionClosed, match=r"PB-022.*permanently closed"):
        outbox.add(session, order_created("x"), to="orders")
    with engine.connect() as connection:
        pass
    with pytest.raises(SessionClosed):
        outbox.add(connection, order_created("x"), to="orders")


def test_a_session_whose_transaction_is_over_inside_its_block_is_refused(engine: Engine) -> None:
    with Session(engine) as session, session.begin() as transaction:
        transaction.commit()
        with pytest.raises(SessionClosed):
            Outbox(engine).add(session, order_created("x"), to="orders")


# Tables -----------------------------------------------------------------------------------------------------------


def test_tables_that_are_missing_are_named_and_the_transaction_goes_on(database_url: str) -> None:
    engine = create_engine(database_url)
    Base.metadata.create_all(engine)
    for outbox in (Outbox(), Outbox(engine)):
        with Session(engine) as session, session.begin():
            with pytest.raises(TablesMissing, match=r"PB-006.*outbox_meta.*pillarbox init"):
                outbox.add(session, order_created("x"), to="orders")
            session.add(Order(name="kept"))
    with engine.connect() as connection:
        assert connection.execute(select(Order.id)).all() != []
    engine.dispose()


def test_tables_of_another_version_or_hash_are_refused_and_the_check_runs_once(database_url: str) -> None:
    known = Outbox()
    with installed(database_url) as engine:
        with engine.begin() as connection:
            known.add(connection, order_created(new_name()), to="orders")
            connection.execute(text("UPDATE outbox_meta SET schema_version = 99"))
        with engine.begin() as connection:
            known.add(connection, order_created(new_name()), to="orders")
            with pytest.raises(SchemaMismatch, match=r"PB-007.*99"):
                Outbox().add(connection, order_created("x"), to="orders")
            connection.execute(text("UPDATE outbox_meta SET schema_version = 2, hash_name = 'crc'"))
            with pytest.raises(SchemaMismatch, match="crc"):
                Outbox().add(connection, order_created("x"), to="orders")


# Implicit commits -------------------------------------------------------------------------------------------------


mysql_with_the_flag = through("mysql-pymysql", "mysql57-pymysql", "mariadb-pymysql", "mariadb102-pymysql")


@mysql_with_the_flag
@pytest.mark.parametrize("statement", ["CREATE TABLE made_inside (a INT)", "DROP TABLE IF EXISTS nothing", "COMMIT"])
def test_an_implicit_commit_is_reported_by_the_statement_that_did_it(engine: Engine, statement: str) -> None:
    name, later = new_name(), new_name()
    outbox = Outbox(engine)
    with Session(engine) as session:
        insert_order(session.connection(), name)
        queued = outbox.add(session, order_created(name), to="orders")
        with pytest.raises(ImplicitCommit, match=rf"PB-023.*{statement[:6]}.*stands committed.*1 event.*{queued.id}"):
            session.execute(text(statement))
        with pytest.raises(ImplicitCommit):
            outbox.add(session, order_created(later), to="orders")
        insert_order(session.connection(), later)
        with pytest.raises(ImplicitCommit):
            session.commit()
        session.rollback()
        session.execute(text("DROP TABLE IF EXISTS made_inside"))
    assert (orders(engine, name), events(engine, name)) == (1, 1)
    assert (orders(engine, later), events(engine, later)) == (0, 0)


@mysql_with_the_flag
def test_an_implicit_commit_behind_sqlalchemys_back_is_found_at_the_next_add(engine: Engine) -> None:
    name = new_name()
    outbox = Outbox(engine)
    with engine.connect() as connection:
        outbox.add(connection, order_created(name), to="orders")
        raw = connection.connection.cursor()
        raw.execute("CREATE TABLE made_behind (a INT)")
        raw.execute("DROP TABLE made_behind")
        with pytest.raises(ImplicitCommit, match="since the last add"):
            outbox.add(connection, order_created(name), to="orders")
        connection.rollback()
        outbox.add(connection, order_created(name), to="orders")
        connection.commit()
    assert events(engine, name) == 2


@mysql_with_the_flag
def test_an_implicit_commit_behind_sqlalchemys_back_is_found_before_the_commit(engine: Engine) -> None:
    name = new_name()
    with engine.connect() as connection:
        Outbox(engine).add(connection, order_created(name), to="orders")
        connection.connection.cursor().execute("DROP TABLE IF EXISTS nothing")
        with pytest.raises(ImplicitCommit, match="before this commit"):
            connection.commit()
    assert events(engine, name) == 1


@through("mysql-pymysql", "mariadb-pymysql", "mariadb102-pymysql")  # 5.7 forbids temporary tables beside GTIDs
def test_ddl_before_the_first_add_and_temporary_tables_are_nobodys_business(engine: Engine) -> None:
    name = new_name()
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS nothing"))
        Outbox(engine).add(connection, order_created(name), to="orders")
        connection.execute(text("CREATE TEMPORARY TABLE brief (a INT)"))
        connection.execute(text("SELECT * FROM brief")).all()
        connection.execute(text("DROP TEMPORARY TABLE brief"))
        connection.execute(text("SET @x = 1"))
    assert events(engine, name) == 1


@through("mysql-aiomysql", "mariadb102-aiomysql", fixture="async_engine")
def test_an_implicit_commit_is_reported_through_aiomysql(async_engine: AsyncEngine, reader: Engine) -> None:
    name = new_name()

    async def story() -> None:
        async with AsyncSession(async_engine) as session:
            await AsyncOutbox(async_engine).add(session, order_created(name), to="orders")
            with pytest.raises(ImplicitCommit):
                await session.execute(text("CREATE TABLE made_async (a INT)"))
            with pytest.raises(ImplicitCommit):
                await session.commit()
        await async_engine.dispose()

    asyncio.run(story())
    assert events(reader, name) == 1


@through(*(name for name in SYNC if name != "mysql-mysqldb"))
def test_a_commit_by_hand_is_found_on_every_driver_that_tells(engine: Engine) -> None:
    name = new_name()
    with engine.connect() as connection:
        Outbox(engine).add(connection, order_created(name), to="orders")
        connection.connection.dbapi_connection.commit()  # type: ignore[union-attr]
        with pytest.raises(ImplicitCommit):
            connection.commit()
    assert events(engine, name) == 1


# SQLite -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain_sqlite(shops: Any) -> Any:
    """SQLite as SQLAlchemy gives it: the driver begins, before INSERT but not before SAVEPOINT."""
    found = create_engine(shops.url("sqlite"))
    yield found
    found.dispose()


@pytest.mark.parametrize("bound", [True, False])
def test_a_savepoint_that_sqlite_would_commit_alone_is_refused_with_the_recipe(
    plain_sqlite: Engine, bound: bool
) -> None:
    name, outbox = new_name(), Outbox(plain_sqlite if bound else None)
    with Session(plain_sqlite) as session:
        with session.begin_nested():
            session.add(Order(name=name))
            session.flush()
            with pytest.raises(SavepointTrap, match=r"PB-024.*sqlite_engine"):
                outbox.add(session, order_created(name), to="orders")
        session.rollback()
    assert orders(plain_sqlite, name) == 1, "this is the trap: the outer rollback undid nothing"
    assert events(plain_sqlite, name) == 0


def test_after_a_savepoint_that_committed_alone_add_is_refused_too(plain_sqlite: Engine) -> None:
    name, outbox = new_name(), Outbox(plain_sqlite)
    with Session(plain_sqlite) as session:
        with session.begin_nested():
            session.add(Order(name=name))
        with pytest.raises(SavepointTrap):
            outbox.add(session, order_created(name), to="orders")


def test_a_savepoint_inside_a_begun_transaction_is_safe_on_sqlite_as_it_is(plain_sqlite: Engine) -> None:
    name, undone = new_name(), new_name()
    outbox = Outbox(plain_sqlite)
    with Session(plain_sqlite) as session:
        outbox.add(session, order_created(name), to="orders")
        savepoint = session.begin_nested()
        outbox.add(session, order_created(undone), to="orders")
        savepoint.rollback()
        session.commit()
    assert (events(plain_sqlite, name), events(plain_sqlite, undone)) == (1, 0)


# Size -------------------------------------------------------------------------------------------------------------


def test_too_many_events_in_one_transaction_are_refused_and_savepoints_count_down(engine: Engine) -> None:
    outbox, names = Outbox(engine, max_events=3), [new_name() for _ in range(4)]
    with Session(engine) as session, session.begin():
        outbox.add(session, order_created(names[0]), to="orders")
        savepoint = session.begin_nested()
        outbox.add_all(session, [order_created(names[1])] * 2, to="orders")
        with pytest.raises(TransactionTooLarge, match=r"PB-025.*4 events, the limit is 3"):
            outbox.add(session, order_created("x"), to="orders")
        savepoint.rollback()
        outbox.add_all(session, [order_created(names[2])] * 2, to="orders")
        with pytest.raises(TransactionTooLarge):
            outbox.add(session, order_created("x"), to="orders")
    with Session(engine) as session, session.begin():
        outbox.add_all(session, [order_created(names[3])] * 3, to="orders")
    assert [events(engine, name) for name in names] == [1, 0, 2, 3]


def test_too_many_bytes_in_one_transaction_are_refused(engine: Engine) -> None:
    outbox, name = Outbox(engine, max_bytes=1_000), new_name()
    with Session(engine) as session, session.begin():
        outbox.add(session, order_created(name), to="orders")
        with pytest.raises(TransactionTooLarge, match=r"bytes, the limit is 1,000"):
            outbox.add(session, order_created(name, headers={"big": "€" * 350}), to="orders")
    assert events(engine, name) == 1


def test_the_default_limits_hold_and_nothing_is_written_beyond_them(engine: Engine) -> None:
    name = new_name()
    with Session(engine) as session, session.begin():
        with pytest.raises(TransactionTooLarge, match="the limit is 1,000"):
            Outbox(engine).add_all(session, [order_created(name)] * 1_001, to="orders")
        big = Event("x" * 900_000, type="order.created", aggregate=("order", name))
        with pytest.raises(TransactionTooLarge, match="the limit is 16,777,216"):
            Outbox(engine).add_all(session, [big] * 19, to="orders")
    assert events(engine, name) == 0


# Half-written -----------------------------------------------------------------------------------------------------


@through(*(name for name in SYNC if not name.startswith("postgres")))  # there an add is one statement
def test_an_add_that_failed_half_way_cannot_commit_but_its_savepoint_can_be_rolled_back(engine: Engine) -> None:
    outbox, name, kept = Outbox(engine), new_name(), new_name()
    with Session(engine) as session:
        outbox.add(session, order_created(kept), to="orders")
        savepoint = session.begin_nested()
        with failing(session.connection(), "INSERT INTO outbox_ready"), pytest.raises(OperationalError):
            outbox.add(session, order_created(name), to="orders")
        savepoint.rollback()
        session.commit()
        with failing(session.connection(), "INSERT INTO outbox_ready"), pytest.raises(OperationalError):
            outbox.add(session, order_created(name), to="orders")
        with pytest.raises(AddFailed, match="PB-029"):
            session.commit()
        session.rollback()
    assert (events(engine, kept), events(engine, name)) == (1, 0)


def test_an_id_that_is_there_already_is_refused(engine: Engine) -> None:
    outbox, name = Outbox(engine), new_name()
    with Session(engine) as session, session.begin():
        queued = outbox.add(session, order_created(name), to="orders")
    with Session(engine) as session, pytest.raises(InvalidEvent, match=r"PB-010.*already holds"):
        outbox.add(session, order_created(name, id=queued.id), to="orders")
    assert events(engine, name) == 1


@through("postgres-psycopg", "postgres-psycopg2")
def test_after_a_swallowed_error_postgresql_would_roll_back_without_a_word_so_the_commit_is_refused(
    engine: Engine,
) -> None:
    outbox, name = Outbox(engine), new_name()
    with Session(engine) as session, session.begin():
        queued = outbox.add(session, order_created(new_name()), to="orders")
    with engine.connect() as connection:
        insert_order(connection, name)
        with pytest.raises(InvalidEvent):
            outbox.add(connection, order_created(name, id=queued.id), to="orders")
        with pytest.raises(AddFailed):
            connection.commit()
        connection.rollback()
        insert_order(connection, name)
        with pytest.raises(InvalidEvent), connection.begin_nested():
            outbox.add(connection, order_created(name, id=queued.id), to="orders")
        connection.commit()
    assert (orders(engine, name), events(engine, name)) == (1, 0)


@through("postgres-psycopg", "postgres-psycopg2")
def test_a_swallowed_error_of_another_statement_is_found_before_the_commit_unless_a_savepoint_undid_it(
    engine: Engine,
) -> None:
    outbox, lost, kept = Outbox(engine), new_name(), new_name()
    with Session(engine) as session:
        outbox.add(session, order_created(lost), to="orders")
        with pytest.raises(DBAPIError):
            session.execute(text("SELECT 1 / 0"))
        with pytest.raises(AddFailed, match=r"PB-029.*1 event"):
            session.commit()
        session.rollback()
        outbox.add(session, order_created(kept), to="orders")
        with pytest.raises(DBAPIError), session.begin_nested():
            session.execute(text("SELECT 1 / 0"))
        session.commit()
    assert (events(engine, lost), events(engine, kept)) == (0, 1)


@through("mysql-pymysql", "mysql-mysqldb", "mariadb102-pymysql")
def test_a_swallowed_deadlock_that_rolled_the_events_back_is_found_before_the_commit(engine: Engine) -> None:
    outbox, lost, after = Outbox(engine), new_name(), new_name()
    with Session(engine) as session, session.begin():
        first, second = Order(name=new_name()), Order(name=new_name())
        session.add_all([first, second])
        session.flush()
        ids = first.id, second.id
    with engine.connect() as one, engine.connect() as other, ThreadPoolExecutor(1) as beside:
        outbox.add(one, order_created(lost), to="orders")
        rename(one, ids[0])
        for _ in range(20):  # the victim is the transaction that has written less
            insert_order(other, new_name())
        rename(other, ids[1])
        waiting = beside.submit(rename, other, ids[0])
        with pytest.raises(OperationalError, match="1213"):
            rename(one, ids[1])
        waiting.result(30)
        other.rollback()
        insert_order(one, after)
        with pytest.raises(AddFailed, match=r"PB-029.*1 event"):
            one.commit()
    assert (orders(engine, after), events(engine, lost)) == (0, 0)


def rename(connection: Connection, number: int) -> None:
    connection.execute(text("UPDATE orders SET name = 'renamed' WHERE id = :id"), {"id": number})


@through("mysql-pymysql", "mysql-mysqldb", "mariadb102-pymysql", "postgres-psycopg")
def test_a_lock_time_out_stays_sqlalchemys_own_error_for_the_callers_retry(engine: Engine) -> None:
    outbox, own = Outbox(engine), uuid4()
    postgresql = engine.dialect.name == "postgresql"
    setting = "SET lock_timeout = '100ms'" if postgresql else "SET innodb_lock_wait_timeout = 1"
    with engine.connect() as holder, engine.connect() as other:
        outbox.add(holder, order_created("x", id=own), to="orders")
        other.execute(text(setting))
        with pytest.raises(OperationalError):
            outbox.add(other, order_created("x", id=own), to="orders")
        other.invalidate()


@through("mysql-pymysql", "mariadb-pymysql")
def test_two_phase_sessions_commit_and_roll_back_both_rows(engine: Engine) -> None:
    outbox, kept, undone = Outbox(engine), new_name(), new_name()
    with Session(engine, twophase=True) as session:
        session.add(Order(name=kept))
        outbox.add(session, order_created(kept), to="orders")
        session.commit()
        session.add(Order(name=undone))
        outbox.add(session, order_created(undone), to="orders")
        session.flush()
        session.rollback()
    assert (orders(engine, kept), events(engine, kept)) == (1, 1)
    assert (orders(engine, undone), events(engine, undone)) == (0, 0)


def test_a_bad_event_among_good_ones_writes_none_and_the_transaction_goes_on(engine: Engine) -> None:
    outbox, name, kept = Outbox(engine), new_name(), new_name()
    with Session(engine) as session, session.begin():
        outbox.add(session, order_created(kept), to="orders")
        with pytest.raises(InvalidEvent):
            outbox.add_all(session, [order_created(name), order_created(name, key="k\0")], to="orders")
        session.add(Order(name=kept))
    assert (orders(engine, kept), events(engine, kept), events(engine, name)) == (1, 1, 0)


# Drivers ----------------------------------------------------------------------------------------------------------


def test_an_untested_driver_is_warned_about_once_for_an_engine(shops: Any) -> None:
    engine = create_engine(shops.url("sqlite"))
    engine.dialect.driver = "unheard-of"
    name, outbox = new_name(), Outbox()
    with engine.begin() as connection:
        with pytest.warns(PillarboxWarning, match="unheard-of") as caught:
            outbox.add(connection, order_created(name), to="orders")
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outbox.add(connection, order_created(name), to="orders")
    engine.dispose()
    assert events(engine, name) == 2


@contextmanager
def failing(connection: Connection, start: str) -> Iterator[None]:
    """Lets statements that start so fail, as a lock time-out or a full disk would."""

    def fail(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith(start):
            raise OperationalError(statement, {}, Exception("made by the test"))

    listen(connection, "before_cursor_execute", fail)
    yield
    remove(connection, "before_cursor_execute", fail)
