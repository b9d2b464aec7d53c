"""The consumer around its loop: starting, stopping, counting, waiting. Broker in memory, SQLite."""

import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from pillarbox import Received, RetryPolicy
from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.registrations import Registrations
from pillarbox.errors import BadConsumer, BrokerUnavailable, MissingDriver
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_world import ConsumerWorld, Thing, write_effect
from tests.conformance.test_consumer_in_memory import InMemory


@pytest.fixture
def under_test() -> InMemory:
    return InMemory()


@pytest.fixture
def world(under_test: InMemory, tmp_path: Path) -> Iterator[ConsumerWorld]:
    engine = consumer_engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    install(engine, ["inbox"])
    yield ConsumerWorld(under_test, engine)
    engine.dispose()


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pillarbox.consume.plan.OUTAGE_RETRY", RetryPolicy(base=0.01, cap=0.1, max_attempts=2**31))


def test_a_consumer_without_handlers_does_not_run(world: ConsumerWorld) -> None:
    with pytest.raises(BadConsumer, match=r"PB-041.*no handlers"):
        world.consumer().run()


def test_a_consumer_runs_once_at_a_time_and_may_be_started_again(world: ConsumerWorld) -> None:
    consumer = world.consumer_of_things()
    for number in (1, 2):
        with consumer.start() as running:
            with pytest.raises(BadConsumer, match="runs already"):
                consumer.run()
            world.send(world.message(number))
            running.wait_until(lambda expected=number: consumer.stats.applied == expected)
    assert world.notes() == ["1", "2"]


def test_a_stop_before_the_run_ends_it_at_once(world: ConsumerWorld) -> None:
    consumer = world.consumer_of_things()
    world.send(world.message())
    consumer.stop()
    consumer.run()
    assert world.effects() == []


def test_waiting_in_vain_shows_the_counters(world: ConsumerWorld) -> None:
    with world.consumer_of_things().start() as running, pytest.raises(TimeoutError, match="applied=0"):
        running.wait_until(lambda: False, timeout=0.05)


def test_an_error_of_the_test_itself_is_not_hidden_by_the_consumers(world: ConsumerWorld) -> None:
    consumer, entered, go_on = world.consumer(drain=0.1), threading.Event(), threading.Event()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing]) -> None:
        entered.set()
        go_on.wait(10)

    world.send(world.message())
    with pytest.raises(ZeroDivisionError), consumer.start():
        _ = 1 / (0 if entered.wait(5) else 1)
    go_on.set()


def test_a_handler_that_outlasts_the_drain_time_is_reported_by_stop(world: ConsumerWorld) -> None:
    consumer, entered, go_on = world.consumer(drain=0.1), threading.Event(), threading.Event()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing]) -> None:
        entered.set()
        go_on.wait(10)

    world.send(world.message())
    running = consumer.start()
    assert entered.wait(5)
    with pytest.raises(TimeoutError, match="still runs"):
        running.stop()
    go_on.set()
    deadline = time.monotonic() + 5
    while running.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running.alive


def test_a_stop_does_not_wait_for_a_retry_that_is_due_later(world: ConsumerWorld) -> None:
    consumer = world.consumer(retry=RetryPolicy(base=60, cap=60, jitter=False))

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        write_effect(session, event.id)
        raise ValueError("later")

    world.send(world.message())
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.retried == 1)
        started = time.monotonic()
    assert time.monotonic() - started < 2
    assert (consumer.stats.acknowledged, consumer.stats.dead, world.effects()) == (0, 0, [])


def test_an_unknown_event_type_is_logged_once(world: ConsumerWorld, caplog: pytest.LogCaptureFixture) -> None:
    consumer = world.consumer_of_things()
    world.send(*[world.message(event_type="something.else") for _ in range(5)])
    with caplog.at_level(logging.INFO, "pillarbox.consume"), consumer.start() as running:
        running.wait_until(lambda: consumer.stats.unhandled == 5)
    assert len([record for record in caplog.records if "something.else" in record.getMessage()]) == 1


def test_a_dead_letter_that_cannot_be_written_stays_with_the_broker(world: ConsumerWorld, under_test: InMemory) -> None:
    consumer = world.consumer_of_things()
    under_test.broker.dead_letters_away = True
    world.send(world.message(payload=b"{"), world.message(2))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.broker_away >= 3)
    assert (consumer.stats.dead, consumer.stats.acknowledged) == (0, 0)
    under_test.broker.dead_letters_away = False
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 2)
    assert (consumer.stats.dead, world.notes()) == (1, ["2"])


def test_a_broker_that_goes_away_before_the_acknowledgement_delivers_again(
    world: ConsumerWorld, under_test: InMemory
) -> None:
    consumer = world.consumer()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        write_effect(session, event.id)
        under_test.broker.away = event.payload.n == 1 and consumer.stats.received == 1

    world.send(world.message(1))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.broker_away == 1)
        under_test.broker.away = False
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1)
    assert (consumer.stats.applied, consumer.stats.duplicates, len(world.effects())) == (1, 1, 1)


def test_a_broker_that_is_away_at_the_start_is_a_clear_error(world: ConsumerWorld, under_test: InMemory) -> None:
    under_test.broker.away = True
    with pytest.raises(BrokerUnavailable, match="PB-005"):
        world.consumer_of_things().run()


@pytest.mark.parametrize(
    ("url", "client", "extra"),
    [
        ("kafka://nowhere", "confluent_kafka", "kafka"),
        ("amqp://nowhere", "pika", "rabbitmq"),
        ("nats://nowhere", "nats", "nats"),
    ],
)
def test_a_missing_client_names_the_line_that_installs_it(
    world: ConsumerWorld, url: str, client: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.startswith((client, f"pillarbox.consume.{extra}", f"pillarbox.publish.{extra}"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, client, None)
    consumer = world.consumer_of_things(broker=url)
    with pytest.raises((MissingDriver, ModuleNotFoundError)) as caught:
        consumer.run()
    assert f"pip install 'pillarbox[{extra}]'" in str(caught.value)


def test_a_consumer_that_ends_at_an_unknown_type_does_not_say_that_it_sets_it_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "pillarbox.consume"):
        Registrations().note_unhandled("order.moved", "stock", "raise")
    assert "set aside" not in caplog.text
    assert "ends" in caplog.text
