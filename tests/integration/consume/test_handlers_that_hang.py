"""Handlers that hang inside their database or inside C, on real servers."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from pillarbox import Received
from pillarbox.testing.conformance.consumer_world import ConsumerWorld, Thing, write_effect
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_in_memory import InMemory

SLEEP = {"postgresql": "SELECT pg_sleep(25)", "mysql": "SELECT SLEEP(25)", "mariadb": "SELECT SLEEP(25)"}


@pytest.fixture(scope="module", params=["postgres", "mysql", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, request.param, tmp_path_factory) as engine:
        yield engine


@pytest.fixture
def world(database: Engine) -> ConsumerWorld:
    return ConsumerWorld(InMemory(), database)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_statement_that_takes_too_long_is_cancelled_and_the_event_tried_again(
    world: ConsumerWorld, workers: int
) -> None:
    consumer, tries = world.consumer(workers=workers, handler_timeout=0.3), list[float]()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        tries.append(time.monotonic())
        write_effect(session, event.id)
        if len(tries) == 1:
            session.execute(text(SLEEP[world.database.dialect.name]))

    world.send(world.message())
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1, 20)
    assert tries[1] - tries[0] < 10
    assert (len(world.effects()), world.marks(consumer)) == (1, 1)
    assert (consumer.stats.timeouts, consumer.stats.retried, consumer.stats.database_away) == (1, 1, 0)


def test_a_wait_for_a_lock_ends_with_the_handlers_time(world: ConsumerWorld) -> None:
    consumer, message = world.consumer(handler_timeout=0.3), world.message()
    with world.database.begin() as connection:
        connection.execute(text("INSERT INTO conformance_only_once (name) VALUES ('locked')"))

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        session.execute(text("UPDATE conformance_only_once SET name = 'mine' WHERE name = 'locked'"))
        write_effect(session, event.id)

    with world.database.connect() as other, other.begin():
        other.execute(text("SELECT name FROM conformance_only_once FOR UPDATE"))
        world.send(message)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, 20)
    assert (consumer.stats.dead, consumer.stats.timeouts, world.effects()) == (1, 3, [])


def test_a_handler_that_cannot_be_interrupted_keeps_its_event_to_itself_until_it_ends(world: ConsumerWorld) -> None:
    """Two handlers of one event at once would be worse than one that is late."""
    consumer, inside, most, tries = world.consumer(workers=3, handler_timeout=0.1), [0], [0], list[int]()
    lock = threading.Lock()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            tries.append(1)
        try:
            if len(tries) == 1:
                time.sleep(1.0)
            write_effect(session, event.id)
        finally:
            inside[0] -= 1

    message = world.message(key=None)
    world.send(message, message, message)
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 3, 20)
    assert (most[0], len(world.effects()), world.marks(consumer)) == (1, 1, 1)
    assert consumer.stats.timeouts == 1


def test_a_handler_that_swallows_its_interruption_has_failed_all_the_same(world: ConsumerWorld) -> None:
    consumer, tries = world.consumer(handler_timeout=0.1), list[int]()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        write_effect(session, event.id, "first" if not tries else "second")
        tries.append(1)
        if len(tries) == 1:
            until = time.monotonic() + 20
            with suppress(BaseException):
                while time.monotonic() < until:
                    time.sleep(0.001)

    world.send(world.message())
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1, 20)
    assert (world.notes(), consumer.stats.timeouts) == (["second"], 1)
