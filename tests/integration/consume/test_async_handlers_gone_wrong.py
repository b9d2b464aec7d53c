"""Async handlers that do what they should not: leave the loop, block it, cancel themselves, go on after their end."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, insert
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession

from pillarbox import Consumer, Received
from pillarbox.consume.engine import consumer_async_engine
from pillarbox.testing.conformance.consumer_world import QUICK_RETRY, WAIT, Thing, effect
from tests.conformance.async_face import AsyncWorld
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_in_memory import InMemory


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


@pytest.fixture
def world(database: Engine) -> AsyncWorld:
    url = database.url.set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)
    return AsyncWorld(InMemory(), database, consumer_async_engine(url, connections=2))


def a_consumer(world: AsyncWorld, drain: float = 10.0) -> Consumer:
    broker = world.under_test.broker
    return Consumer(
        "gone-wrong", database=world.engine, broker=broker, sources=[world.source], retry=QUICK_RETRY, drain=drain
    )


def test_a_handler_that_exits_ends_the_consumer_instead_of_its_loop_alone(world: AsyncWorld) -> None:
    consumer = a_consumer(world)

    @consumer.on("thing.happened")
    async def handle(event: Received[Thing]) -> None:
        sys.exit(3)

    world.send(world.message())
    running = consumer.start()
    with pytest.raises(SystemExit):
        running.wait_until(lambda: False, WAIT)
    assert consumer.stats.acknowledged == 0


def test_a_forgotten_task_that_exits_leaves_the_loop_to_the_others(
    world: AsyncWorld, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, forgotten = a_consumer(world), list[asyncio.Future[None]]()

    async def leave() -> None:
        sys.exit(3)

    @consumer.on("thing.happened")
    async def handle(event: Received[Thing], session: AsyncSession) -> None:
        forgotten.append(asyncio.ensure_future(leave()))
        await session.execute(insert(effect).values(event_id=event.id, note=""))

    world.send(world.message(1), world.message(2))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
    assert "SystemExit(3)" in caplog.text
    assert all(isinstance(one.exception(), SystemExit) for one in forgotten)


def test_a_handler_whose_own_task_was_cancelled_has_failed_and_its_consumer_goes_on(world: AsyncWorld) -> None:
    consumer = a_consumer(world)

    @consumer.on("thing.happened")
    async def handle(event: Received[Thing], session: AsyncSession) -> None:
        if event.payload.n == 1:
            inner = asyncio.ensure_future(asyncio.sleep(WAIT))
            inner.cancel()
            await inner
        await session.execute(insert(effect).values(event_id=event.id, note=""))

    world.send(world.message(1), world.message(2))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
    assert (consumer.stats.dead, consumer.stats.applied) == (1, 1)


def test_a_handler_that_blocks_the_loop_does_not_keep_the_consumer_long_after_its_drain(world: AsyncWorld) -> None:
    consumer, entered, let_go = a_consumer(world, drain=0.2), threading.Event(), threading.Event()

    @consumer.on("thing.happened")
    async def handle(event: Received[Thing]) -> None:
        entered.set()
        let_go.wait(40)

    world.send(world.message())
    running = consumer.start()
    assert entered.wait(WAIT)
    begun = time.monotonic()
    consumer.stop()
    running._thread.join(30)
    took = time.monotonic() - begun
    let_go.set()
    assert took < 20


def test_a_forgotten_task_cannot_write_into_the_next_events_transaction(world: AsyncWorld) -> None:
    consumer, errors = a_consumer(world), list[BaseException | None]()
    first_ended, tried = asyncio.Event(), asyncio.Event()

    async def write_late(session: AsyncSession) -> None:
        await first_ended.wait()
        try:
            await session.execute(insert(effect).values(event_id="late", note="of the first"))
            errors.append(None)
        except InvalidRequestError as error:
            errors.append(error)
        tried.set()

    forgotten = list[asyncio.Future[None]]()

    @consumer.on("thing.happened")
    async def handle(event: Received[Thing], session: AsyncSession) -> None:
        await session.execute(insert(effect).values(event_id=event.id, note=""))
        if event.payload.n == 1:
            forgotten.append(asyncio.ensure_future(write_late(session)))
        else:
            first_ended.set()
            await asyncio.wait_for(tried.wait(), WAIT)

    world.send(world.message(1), world.message(2))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
    assert errors[0] is not None
    assert "late" not in world.effects()
