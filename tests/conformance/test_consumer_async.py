"""The consumer's contract with async handlers on an AsyncEngine: the same classes, every async driver."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from pillarbox import Consumer, Received
from pillarbox.consume.engine import consumer_async_engine
from pillarbox.errors import BadHandler, TablesMissing
from pillarbox.testing.conformance.consumer import DeliveryConformance, TransactionConformance
from pillarbox.testing.conformance.consumer_batches import BatchConformance, BatchTransactionConformance
from pillarbox.testing.conformance.consumer_policies import PolicyConformance
from pillarbox.testing.conformance.consumer_world import WAIT, Thing, effect
from tests.conformance.async_face import AsyncWorld
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_in_memory import InMemory
from tests.conformance.test_consumer_nats import NatsBroker
from tests.conformance.test_consumer_parallel import InMemoryBroker, KafkaBroker, RabbitBroker

DRIVERS = {
    "postgres+asyncpg": "postgresql+asyncpg",
    "postgres+psycopg": "postgresql+psycopg_async",
    "mysql+aiomysql": "mysql+aiomysql",
    "mysql+asyncmy": "mysql+asyncmy",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
}

SECOND = {"postgres+psycopg", "mysql+asyncmy"}  # of their server
CHOSEN = [pytest.param(name, marks=pytest.mark.long if name in SECOND else ()) for name in DRIVERS]


class OnAsyncpg:
    @pytest.fixture(scope="class")
    @classmethod
    def database(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
        with shared_database(request, "postgres", tmp_path_factory) as engine:
            yield engine

    @pytest.fixture
    def engine(self, database: Engine) -> AsyncEngine:
        return async_engine(database, "postgresql+asyncpg")

    @pytest.fixture
    def world(self, under_test: InMemory, database: Engine, engine: AsyncEngine) -> AsyncWorld:
        return AsyncWorld(under_test, database, engine)


def async_engine(database: Engine, drivername: str) -> AsyncEngine:
    url = database.url.set(drivername=drivername)
    return consumer_async_engine(url.render_as_string(hide_password=False), connections=8)


class TestDeliveriesInMemory(InMemoryBroker, OnAsyncpg, DeliveryConformance): ...


class TestDeliveriesKafka(KafkaBroker, OnAsyncpg, DeliveryConformance): ...


class TestDeliveriesRabbitMQ(RabbitBroker, OnAsyncpg, DeliveryConformance):
    test_each_consumer_name_applies_every_event = None  # type: ignore[assignment]  # a queue is shared


@pytest.mark.long
class TestDeliveriesNats(NatsBroker, OnAsyncpg, DeliveryConformance): ...


class TestBatches(InMemoryBroker, OnAsyncpg, BatchConformance): ...


class TestPolicies(InMemoryBroker, OnAsyncpg, PolicyConformance): ...


class TestTransactions(InMemoryBroker, TransactionConformance, BatchTransactionConformance):
    @pytest.fixture(scope="class", params=CHOSEN)
    @classmethod
    def driver(cls, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(scope="class")
    @classmethod
    def database(
        cls, driver: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Engine]:
        with shared_database(request, driver.partition("+")[0], tmp_path_factory) as engine:
            yield engine

    @pytest.fixture
    def world(self, under_test: InMemory, database: Engine, driver: str) -> AsyncWorld:
        return AsyncWorld(under_test, database, async_engine(database, DRIVERS[driver]))


class TestInOneLoop(InMemoryBroker, OnAsyncpg):
    """What only async handlers do."""

    @staticmethod
    def consumer(world: AsyncWorld, **changes: object) -> Consumer:
        arguments = {"database": world.engine, "broker": world.under_test.broker, "sources": [world.source]}
        return Consumer("one-loop", **(arguments | changes))  # type: ignore[arg-type]

    def test_handlers_of_different_keys_wait_at_the_same_time_in_one_thread(self, world: AsyncWorld) -> None:
        consumer, inside, threads = self.consumer(world, workers=3), [0], set[int]()
        meet = asyncio.Event()

        @consumer.on("thing.happened")
        async def handle(event: Received[Thing], session: AsyncSession) -> None:
            threads.add(threading.get_ident())
            inside[0] += 1
            if inside[0] == 3:
                meet.set()
            await asyncio.wait_for(meet.wait(), WAIT)
            await session.execute(insert(effect).values(event_id=event.id, note=""))

        world.send(*[world.message(n, key=f"k{n}") for n in range(3)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 3, WAIT)
        assert (len(world.effects()), len(threads)) == (3, 1)

    def test_events_of_one_key_keep_their_order_while_others_go_on(self, world: AsyncWorld) -> None:
        consumer, seen, failed = self.consumer(world, workers=8), list[tuple[str | None, int]](), list[int]()

        @consumer.on("thing.happened")
        async def handle(event: Received[Thing], connection: AsyncConnection) -> None:
            await asyncio.sleep(0.001 * (event.payload.n % 5))
            if event.payload.n == 8 and not failed:
                failed.append(1)
                raise ConnectionError("once")
            await connection.execute(insert(effect).values(event_id=event.id, note=""))
            seen.append((event.key, event.payload.n))

        world.send(*[world.message(n, key=f"k{n % 4}") for n in range(60)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 60, WAIT)
        for k in range(4):
            assert [n for key, n in seen if key == f"k{k}"] == list(range(k, 60, 4))

    def test_a_handler_that_hangs_is_cancelled_reported_where_it_waits_and_tried_again(
        self, world: AsyncWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        consumer, tries = self.consumer(world, handler_timeout=0.3), list[int]()

        async def wait_for_nothing() -> None:
            await asyncio.Event().wait()

        @consumer.on("thing.happened")
        async def handle(event: Received[Thing], session: AsyncSession) -> None:
            tries.append(1)
            await session.execute(insert(effect).values(event_id=event.id, note=""))
            if len(tries) == 1:
                await wait_for_nothing()

        world.send(world.message())
        with caplog.at_level(logging.ERROR, "pillarbox.consume"), consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        assert (len(tries), len(world.effects()), consumer.stats.timeouts) == (2, 1, 1)
        assert "in wait_for_nothing" in next(r.getMessage() for r in caplog.records if "out of time" in r.getMessage())

    def test_a_stop_waits_for_handlers_and_cancels_them_at_the_deadline(self, world: AsyncWorld) -> None:
        consumer, entered = self.consumer(world, workers=2, drain=0.3), threading.Event()

        @consumer.on("thing.happened")
        async def handle(event: Received[Thing], session: AsyncSession) -> None:
            await session.execute(insert(effect).values(event_id=event.id, note=""))
            entered.set()
            await asyncio.Event().wait()

        world.send(world.message())
        running = consumer.start()
        assert entered.wait(WAIT)
        with pytest.raises(TimeoutError, match="still runs"):
            running.stop()
        running._thread.join(WAIT)
        assert (world.effects(), consumer.stats.acknowledged) == ([], 0)

    def test_sync_handlers_and_sync_sessions_are_refused_where_they_are_written(self, world: AsyncWorld) -> None:
        consumer = self.consumer(world)
        with pytest.raises(BadHandler, match="not async"):

            @consumer.on("thing.happened")
            def handle(event: Received[Thing], session: AsyncSession) -> None: ...

    def test_a_url_of_an_async_driver_makes_an_async_consumer_and_names_a_missing_inbox(
        self, world: AsyncWorld, postgres_url: str
    ) -> None:
        url = postgres_url.replace("postgresql+psycopg", "postgresql+asyncpg")
        consumer = self.consumer(world, database=url)
        assert consumer.asynchronous

        @consumer.on("thing.happened")
        async def handle(event: Received[Thing]) -> None: ...

        with pytest.raises(TablesMissing, match=r"PB-006.*init --part inbox"):
            consumer.run()
