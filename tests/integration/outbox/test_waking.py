"""What wakes a relay: a nudge in the process after the commit, or PostgreSQL's NOTIFY with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from pillarbox import AsyncOutbox, Outbox
from pillarbox.errors import ConfigError
from pillarbox.store.wakeup import CHANNEL, Listener, listening
from tests.integration.outbox.shop import event, events, insert_order, new_name, open_engine, through


class Woken:
    """Counts, and can be waited for."""

    def __init__(self) -> None:
        self.times = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.times += 1
            self._changed.notify_all()

    def until(self, times: int, seconds: float = 20.0) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.times >= times, seconds), f"woken {self.times} times only"


def nudging(wake: Callable[[], None]) -> Outbox:
    outbox = Outbox()
    outbox.nudges(wake)
    return outbox


# In the process ---------------------------------------------------------------------------------------------------


def test_a_nudge_comes_after_the_commit_when_the_event_can_be_seen(engine: Engine) -> None:
    name, seen = new_name(), list[int]()
    reader = open_engine(engine.url.render_as_string(hide_password=False))
    outbox = nudging(lambda: seen.append(events(reader, name)))
    with Session(engine) as session, session.begin():
        outbox.add(session, event(name), to="orders")
        outbox.add(session, event(name), to="orders")
        assert seen == []
    assert seen == [2]
    reader.dispose()


def test_no_nudge_comes_after_a_rollback_or_when_nothing_was_added(engine: Engine) -> None:
    woken = Woken()
    outbox = nudging(woken)
    with Session(engine) as session:
        outbox.add(session, event(new_name()), to="orders")
        session.rollback()
    with engine.begin() as connection:
        insert_order(connection, new_name())
    with Session(engine) as session, session.begin():
        inner = session.begin_nested()
        outbox.add(session, event(new_name()), to="orders")
        inner.rollback()
    assert woken.times == 0


@through("sqlite-pysqlite", "postgres-psycopg", "mysql-pymysql")
def test_a_connection_that_is_kept_nudges_when_its_next_transaction_begins(engine: Engine) -> None:
    woken = Woken()
    outbox = nudging(woken)
    with engine.connect() as connection:
        outbox.add(connection, event(new_name()), to="orders")
        connection.commit()
        assert woken.times == 0
        connection.execute(text("SELECT 1"))
        assert woken.times == 1
    assert woken.times == 1


@through("sqlite-pysqlite")
def test_a_nudge_that_fails_harms_nobody(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    name = new_name()
    with Session(engine) as session, session.begin():
        nudging(fail).add(session, event(name), to="orders")
    assert events(engine, name) == 1
    assert "nudge after the commit failed" in caplog.text


@through("sqlite-pysqlite")
def test_two_outboxes_of_one_engine_each_nudge_their_own_relay_and_none_when_told_to_stop(engine: Engine) -> None:
    first, second = Woken(), Woken()
    one, other = nudging(first), nudging(second)
    with Session(engine) as session, session.begin():
        one.add(session, event(new_name()), to="orders")
    assert (first.times, second.times) == (1, 0)
    with Session(engine) as session, session.begin():
        one.add(session, event(new_name()), to="orders")
        other.add(session, event(new_name()), to="orders")
    assert (first.times, second.times) == (2, 1)
    one.nudges(None)
    with Session(engine) as session, session.begin():
        one.add(session, event(new_name()), to="orders")
    assert (first.times, second.times) == (2, 1)


async def _add(engine: AsyncEngine, outbox: AsyncOutbox, name: str) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await outbox.add(session, event(name), to="orders")
    await engine.dispose()


def test_async_sessions_nudge_too(async_engine: AsyncEngine) -> None:
    import asyncio

    woken = Woken()
    outbox = AsyncOutbox()
    outbox.nudges(woken)
    asyncio.run(_add(async_engine, outbox, new_name()))
    assert woken.times == 1


# Across processes -------------------------------------------------------------------------------------------------


def plain(engine: Engine) -> str:
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture
def channel(engine: Engine) -> Iterator[psycopg.Connection]:
    with psycopg.connect(plain(engine), autocommit=True) as connection:
        connection.execute(f"LISTEN {CHANNEL}")
        yield connection


def heard(channel: psycopg.Connection) -> int:
    """What came up to now: one more, from ourselves, ends the wait."""
    channel.execute(f"SELECT pg_notify('{CHANNEL}', 'end')")
    return sum(1 for _ in iter(lambda: next(channel.notifies(timeout=20)).payload, "end"))


@through("postgres-psycopg", "postgres-psycopg2")
def test_a_commit_notifies_once_however_many_events_it_holds(engine: Engine, channel: psycopg.Connection) -> None:
    outbox = Outbox(notify=True)
    with Session(engine) as session, session.begin():
        for _ in range(3):
            outbox.add(session, event(new_name()), to="orders")
        assert heard(channel) == 0
    assert heard(channel) == 1


@through("postgres-psycopg")
def test_a_rollback_a_plain_outbox_and_a_transaction_without_events_notify_nobody(
    engine: Engine, channel: psycopg.Connection
) -> None:
    with Session(engine) as session:
        Outbox(notify=True).add(session, event(new_name()), to="orders")
        session.rollback()
    with Session(engine) as session, session.begin():
        Outbox().add(session, event(new_name()), to="orders")
    with engine.begin() as connection:
        insert_order(connection, new_name())
    assert heard(channel) == 0


@through("sqlite-pysqlite", "mysql-pymysql")
def test_other_databases_have_no_such_thing_and_do_without(engine: Engine) -> None:
    name = new_name()
    with Session(engine) as session, session.begin():
        Outbox(notify=True).add(session, event(name), to="orders")
    assert events(engine, name) == 1
    with pytest.raises(ConfigError, match="Only PostgreSQL"):
        Listener(engine.url.render_as_string(hide_password=False), lambda: None)


@through("postgres-psycopg")
def test_a_listener_wakes_at_once_and_comes_back_after_its_connection_was_killed(engine: Engine) -> None:
    woken = Woken()
    outbox = Outbox(notify=True)
    with listening(plain(engine), woken):
        woken.until(1)  # what was committed before it listened
        with Session(engine) as session, session.begin():
            outbox.add(session, event(new_name()), to="orders")
        woken.until(2, seconds=2)
        kill_listeners(engine)
        woken.until(3)  # connected again: something may have been missed
        with Session(engine) as session, session.begin():
            outbox.add(session, event(new_name()), to="orders")
        woken.until(4, seconds=2)


@through("postgres-psycopg")
def test_a_listener_waits_for_a_server_that_is_away_and_ends_when_told(engine: Engine) -> None:
    began = time.monotonic()
    with listening("postgresql://nobody@127.0.0.1:1/nothing", lambda: None) as listener:
        assert not listener.connected
    assert time.monotonic() - began < 5


def kill_listeners(engine: Engine) -> None:
    with engine.begin() as connection:
        killed = connection.execute(
            text(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE application_name = 'pillarbox-listener' AND datname = current_database()"
            )
        ).scalar_one()
        assert killed == 1
