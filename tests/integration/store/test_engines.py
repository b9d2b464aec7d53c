"""Engines against real servers: isolation, deadlines, refusals, and SQLite's transactions."""

import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError

from pillarbox.errors import (
    AccessRefused,
    BadUrl,
    ConfigError,
    DatabaseUnavailable,
    PillarboxError,
    SchemaMismatch,
    TablesMissing,
    UsedAfterFork,
)
from pillarbox.ports import Settlement
from pillarbox.store.engines import (
    Timeouts,
    check_schema,
    connect_error,
    relay_engine,
    sqlite_engine,
    use_explicit_begin,
)
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.testing.conformance.store_world import event, failed
from tests.sql_outbox import SqlOutbox

LEVEL = {
    "postgresql": "SHOW transaction_isolation",
    "mysql": "SELECT variable_value FROM performance_schema.session_variables WHERE variable_name LIKE 't%%isolation'",
}


def refused(url: str) -> PillarboxError:
    engine = relay_engine(url, timeouts=Timeouts(connect=2))
    with pytest.raises(DBAPIError) as caught, engine.connect():
        pass
    return connect_error(caught.value, url)


def test_a_relays_session_is_read_committed_and_in_utc(outbox: SqlOutbox) -> None:
    with outbox.engine.connect() as connection:
        if outbox.dialect == "sqlite":
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            return
        assert connection.get_isolation_level() == "READ COMMITTED"
        zone = "SHOW timezone" if outbox.dialect == "postgresql" else "SELECT @@session.time_zone"
        assert connection.exec_driver_sql(zone).scalar() in {"UTC", "+00:00"}


def test_a_wait_for_a_lock_has_an_end(outbox: SqlOutbox) -> None:
    outbox.add([event()])
    impatient = relay_engine(outbox.url, timeouts=Timeouts(lock=1))
    change = "UPDATE outbox_ready SET attempts = 1"
    with outbox.engine.begin() as holder:
        holder.exec_driver_sql(change)
        begun = time.monotonic()
        with pytest.raises(OperationalError), impatient.begin() as connection:
            connection.exec_driver_sql(change)
        assert time.monotonic() - begun < 5
    impatient.dispose()


def test_a_slow_statement_has_an_end(outbox: SqlOutbox) -> None:
    if outbox.dialect == "sqlite":
        return  # nobody to wait for
    impatient = relay_engine(outbox.url, timeouts=Timeouts(statement=1))
    sleep = "SELECT pg_sleep(20)" if outbox.dialect == "postgresql" else "SELECT SLEEP(20) FROM outbox_meta FOR UPDATE"
    begun = time.monotonic()
    with pytest.raises((DBAPIError, AssertionError)), impatient.begin() as connection:
        assert connection.exec_driver_sql(sleep).scalar() == 0  # MariaDB says 1 when its limit ended the sleep
    assert time.monotonic() - begun < 10
    impatient.dispose()


@pytest.mark.services
def test_a_postgresql_server_that_never_answers_is_given_up(postgres_url: str) -> None:
    """As a frozen server: connected, but silent. Here the server's own limit is taken away."""
    engine = relay_engine(postgres_url, timeouts=Timeouts(statement=1))
    begun = time.monotonic()
    with engine.connect() as connection:
        connection.exec_driver_sql("SET statement_timeout = 0")
        with pytest.raises(OperationalError, match="no answer") as caught:
            connection.exec_driver_sql("SELECT pg_sleep(30)")
        assert caught.value.connection_invalidated
    assert 1.5 < time.monotonic() - begun < 10
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()


def test_a_database_that_is_away_is_a_sentence(outbox: SqlOutbox) -> None:
    away = "sqlite:////no/such/folder/x.db"
    if outbox.dialect != "sqlite":
        away = make_url(outbox.url).set(port=1).render_as_string(hide_password=False)
    assert type(refused(away)) is DatabaseUnavailable


def test_a_wrong_password_or_user_is_a_refusal_and_is_not_shown(outbox: SqlOutbox) -> None:
    if outbox.dialect == "sqlite":
        return  # no users
    wrong = make_url(outbox.url).set(username="nobody_here", password="wr0ng-one").render_as_string(hide_password=False)
    found = refused(wrong)
    assert type(found) is AccessRefused
    assert "wr0ng-one" not in str(found)


def test_a_database_that_does_not_exist_is_a_bad_url(outbox: SqlOutbox) -> None:
    if outbox.dialect == "sqlite":
        return  # it is created
    nowhere = make_url(outbox.url).set(database="no_such_database").render_as_string(hide_password=False)
    assert isinstance(refused(nowhere), BadUrl | AccessRefused)


def test_the_tables_are_checked(outbox: SqlOutbox) -> None:
    with outbox.engine.begin() as connection:
        check_schema(connection)
        with pytest.raises(TablesMissing, match="inbox_event"):
            check_schema(connection, "inbox")
        assert connection.execute(text("SELECT 1")).scalar() == 1  # the transaction is still good
    with outbox.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE outbox_meta SET schema_version = 99")
        with pytest.raises(SchemaMismatch, match="99"):
            check_schema(connection)
        connection.exec_driver_sql("DELETE FROM outbox_meta")
        with pytest.raises(TablesMissing, match="did not finish"):
            check_schema(connection)
        connection.rollback()


def test_a_store_says_that_the_tables_are_missing(tmp_path: Path) -> None:
    store = RowLeaseStore(relay_engine(f"sqlite:///{tmp_path / 'empty.db'}"), relay_id="a", lease=60.0)
    for use in (lambda: store.claim(1), lambda: store.move_due(1)):
        with pytest.raises(TablesMissing):
            use()


def test_an_engine_at_another_isolation_level_is_refused(outbox: SqlOutbox) -> None:
    """C043: REPEATABLE READ would lock gaps that business inserts need."""
    if outbox.dialect == "sqlite":
        return  # one writer at a time, at every level
    engine = create_engine(outbox.url, isolation_level="REPEATABLE READ")
    with pytest.raises(ConfigError, match="REPEATABLE READ"):
        RowLeaseStore(engine, relay_id="a", lease=60.0).claim(1)
    engine.dispose()


# SQLite ---------------------------------------------------------------------------------------------------------------


def test_a_savepoint_that_is_rolled_back_takes_only_its_own_rows(tmp_path: Path) -> None:
    engine = sqlite_engine(f"sqlite:///{tmp_path / 'x.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
    with engine.begin() as connection:
        with connection.begin_nested() as savepoint:
            connection.exec_driver_sql("INSERT INTO t VALUES (1)")
            savepoint.rollback()
        connection.exec_driver_sql("INSERT INTO t VALUES (2)")
    with engine.connect() as connection:
        with connection.begin_nested():
            connection.exec_driver_sql("INSERT INTO t VALUES (3)")
        connection.rollback()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT n FROM t").scalars().all() == [2]


def test_reading_first_and_writing_later_never_finds_the_database_locked(tmp_path: Path) -> None:
    """With DEFERRED the second of two such transactions fails at once, whatever the busy time-out."""
    engine = sqlite_engine(f"sqlite:///{tmp_path / 'x.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
        connection.exec_driver_sql("INSERT INTO t VALUES (0)")

    def add_one() -> None:
        for _ in range(25):
            with engine.begin() as connection:
                found = connection.exec_driver_sql("SELECT n FROM t").scalar_one()
                connection.exec_driver_sql("UPDATE t SET n = ?", (found + 1,))

    threads = [threading.Thread(target=add_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT n FROM t").scalar() == 100


def test_a_reader_is_not_held_up_by_a_writer(tmp_path: Path) -> None:
    engine = sqlite_engine(f"sqlite:///{tmp_path / 'x.db'}", busy_timeout=0.1)
    with engine.begin() as writer:
        writer.exec_driver_sql("CREATE TABLE t (n INTEGER)")
        reader = engine.execution_options(pillarbox_begin="DEFERRED")
        with reader.connect() as connection:
            assert connection.exec_driver_sql("SELECT COUNT(*) FROM sqlite_master").scalar() == 0


def test_an_existing_engine_can_be_given_the_same_behaviour(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'x.db'}")
    use_explicit_begin(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")  # DDL is part of the transaction, too
        connection.rollback()
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM sqlite_master").scalar() == 0
    with pytest.raises(ValueError, match="IMMEDIATE"):
        use_explicit_begin(engine, begin="LATER")


def test_a_full_disk_is_an_outage_and_loses_nothing(tmp_path: Path) -> None:
    outbox = SqlOutbox(f"sqlite:///{tmp_path / 'x.db'}")
    outbox.add([event(key=str(n)) for n in range(50)])
    store = outbox.store("a")
    claim = store.claim(50)

    def limit(pages: str) -> None:
        with store._engine.connect() as connection:
            most = connection.exec_driver_sql("PRAGMA page_count").scalar_one() if pages == "no more" else pages
            connection.exec_driver_sql(f"PRAGMA max_page_count = {most}")

    limit("no more")
    bulky = [failed(one, error="x" * 2_000) for one in claim.deliveries]
    with pytest.raises(DatabaseUnavailable, match="full"):
        store.settle(Settlement(claim.token, parked=bulky))
    assert set(outbox.states().values()) == {"PROCESSING"}
    limit("1000000")
    assert store.settle(Settlement(claim.token, parked=bulky)).parked == 50
    outbox.close()


# Forks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_store_that_was_used_before_a_fork_is_refused_after_it(tmp_path: Path) -> None:
    outbox = SqlOutbox(f"sqlite:///{tmp_path / 'x.db'}")
    store = outbox.store("a")
    store.claim(1)
    answers = multiprocessing.get_context("fork").SimpleQueue()

    def child() -> None:
        try:
            store.claim(1)
        except UsedAfterFork as error:
            answers.put(error.code)
        else:
            answers.put("claimed")

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(20)
    assert answers.get() == "PB-028"
    outbox.close()
