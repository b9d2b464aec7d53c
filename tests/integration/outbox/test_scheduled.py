"""``available_at``: the event is committed with its business row and waits, parked, for its time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.event import listens_for
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from pillarbox.errors import InvalidEvent
from pillarbox.event.destination import Destination, Exchange
from pillarbox.outbox import AsyncOutbox, Outbox
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.store.dbtime import aware
from pillarbox.testing.clock import FakeClock
from tests.integration.outbox.shop import event, events, insert_order, installed, new_name, orders, through

SOON = datetime(2100, 6, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=2)))
DESTINATIONS: list[str | Destination] = ["orders", Exchange("shop", "a.b")]


def parked(engine: Engine, name: str) -> list[Any]:
    with engine.connect() as connection:
        return list(
            connection.execute(
                text(
                    "SELECT p.partition_no, p.lane, p.dest, p.state, p.due_at, p.attempts, p.target, p.error"
                    " FROM outbox_parked p JOIN outbox_event e ON e.id = p.id WHERE e.aggregate_id = :name"
                    " ORDER BY p.id, p.dest"
                ),
                {"name": name},
            )
        )


def as_moment(value: Any) -> datetime:
    return aware(datetime.fromisoformat(value) if isinstance(value, str) else value)


@pytest.mark.parametrize("count", [1, 30])
def test_an_event_for_later_is_parked_with_its_time_and_not_ready(engine: Engine, count: int) -> None:
    name, lane = new_name(), 0
    with engine.begin() as connection:
        insert_order(connection, name)
        drafts = [event(name) for _ in range(count)]
        Outbox(engine).add_all(connection, drafts, to=DESTINATIONS, available_at=SOON)
    found, lane = parked(engine, name), lane_of(name)
    assert [tuple(row[:4]) for row in found] == [(partition_of(lane), lane, n, "SCHEDULED") for n in (0, 1)] * count
    assert {as_moment(row.due_at) for row in found} == {SOON.astimezone(UTC)}
    assert [(row.attempts, row.target, row.error) for row in found] == [
        (0, lane_of("orders"), ""),
        (0, lane_of("shop"), ""),
    ] * count
    with engine.connect() as connection:
        shown = connection.execute(
            text("SELECT DISTINCT status, last_error FROM outbox_status WHERE aggregate_id = :name"), {"name": name}
        ).all()
    assert shown == [("SCHEDULED", None)]
    assert orders(engine, name) == 1


def test_it_is_rolled_back_with_its_transaction(engine: Engine) -> None:
    name = new_name()
    with Session(engine) as session:
        Outbox(engine).add(session, event(name), to="orders", available_at=SOON)
        session.rollback()
    assert parked(engine, name) == []
    assert events(engine, name) == 0


def test_a_time_in_the_past_goes_straight_to_the_queue(engine: Engine) -> None:
    name = new_name()
    with engine.begin() as connection:
        Outbox(engine).add(connection, event(name), to="orders", available_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert parked(engine, name) == []
    assert events(engine, name) == 1


def test_it_takes_as_many_statements_as_an_event_that_goes_now(engine: Engine) -> None:
    outbox, statements = Outbox(engine), 0

    @listens_for(engine, "before_cursor_execute")
    def count(*_arguments: Any) -> None:
        nonlocal statements
        statements += 1

    def of(number: int, **when: Any) -> int:
        nonlocal statements
        with engine.begin() as connection:
            outbox.add(connection, event(new_name()), to="orders")
            statements = 0
            outbox.add_all(connection, [event(new_name()) for _ in range(number)], to="orders", **when)
            return statements

    for number in (1, 40):
        assert of(number, available_at=SOON) == of(number)


@through("postgres-psycopg", "mysql-pymysql", "sqlite-pysqlite")
def test_what_is_past_is_decided_by_the_databases_clock(engine: Engine) -> None:
    """The host's clock is an hour ahead: what is due in half an hour is not sent before."""
    name, clock = new_name(), FakeClock(datetime.now(UTC) + timedelta(hours=1))
    due = datetime.now(UTC) + timedelta(minutes=30)
    with engine.begin() as connection:
        Outbox(engine, clock=clock).add(connection, event(name), to="orders", available_at=due)
    assert [row.state for row in parked(engine, name)] == ["SCHEDULED"]


WITHOUT_ZONE = SOON.replace(tzinfo=None)
OUT_OF_RANGE = WITHOUT_ZONE.replace(year=9999, month=12, day=31, hour=23, tzinfo=timezone(timedelta(hours=-1)))


@pytest.mark.parametrize("moment", [WITHOUT_ZONE, "2100-01-01T00:00:00Z", 4102444800])
def test_a_time_without_zone_or_no_time_at_all_is_refused(moment: Any, tmp_path: Any) -> None:
    with installed(f"sqlite:///{tmp_path}/a.db") as engine, engine.begin() as connection:
        with pytest.raises(InvalidEvent, match=r"PB-010.*available_at must be a datetime with a zone"):
            Outbox(engine).add(connection, event("x"), to="orders", available_at=moment)
        with pytest.raises(InvalidEvent, match="available_at is no moment in UTC"):
            Outbox(engine).add(connection, event("x"), to="orders", available_at=OUT_OF_RANGE)


@pytest.fixture
def added(async_engine: AsyncEngine) -> str:
    name = new_name()

    async def add() -> None:
        async with AsyncSession(async_engine) as session, session.begin():
            outbox = AsyncOutbox(async_engine)
            await outbox.add(session, event(name), to=DESTINATIONS, available_at=SOON)
            await outbox.add_all(session, [event(name), event(name)], to="orders", available_at=SOON)

    asyncio.run(add())
    return name


def test_async_writes_the_same(added: str, reader: Engine) -> None:
    found = parked(reader, added)
    assert [(row.dest, row.state) for row in found] == [(n, "SCHEDULED") for n in (0, 1, 0, 0)]
    assert {as_moment(row.due_at) for row in found} == {SOON.astimezone(UTC)}
