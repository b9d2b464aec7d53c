"""Handlers that hang, and consumers that pause or stop: what is interrupted, what waits, and what comes again."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from ...consume import Received
from ...consume import dead as letters
from .consumer_world import WAIT, BrokerUnderTest, ConsumerWorld, Thing, write_effect


class ControlConformance:
    """Needs the fixtures of :class:`~.consumer.ConsumerConformance`."""

    @pytest.fixture
    def world(self, under_test: BrokerUnderTest, database: Engine) -> ConsumerWorld:
        """The broker, the database and a source of this test's own."""
        return ConsumerWorld(under_test, database)

    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_handler_that_hangs_is_reported_with_its_stack_interrupted_and_tried_again(
        self, world: ConsumerWorld, workers: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        consumer, tries = world.consumer(workers=workers, handler_timeout=0.3), list[int]()

        @consumer.on("thing.happened")
        def handle_and_hang(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            tries.append(event.payload.n)
            until = time.monotonic() + WAIT
            while event.payload.n == 1 and tries.count(1) == 1 and time.monotonic() < until:
                time.sleep(0.001)

        world.send(world.message(1), world.message(2))
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
        world.assert_all_acknowledged(consumer)
        assert (tries, world.notes()) == ([1, 1, 2], ["1", "2"])
        assert (consumer.stats.timeouts, consumer.stats.retried) == (1, 1)
        (report,) = [record.getMessage() for record in caplog.records if "out of time" in record.getMessage()]
        assert "in handle_and_hang" in report
        assert "time.sleep(0.001)" in report

    def test_an_event_whose_handler_always_hangs_is_set_aside(self, world: ConsumerWorld) -> None:
        consumer = world.consumer(handler_timeout=0.2)

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            until = time.monotonic() + WAIT
            while event.payload.n == 1 and time.monotonic() < until:
                time.sleep(0.001)

        world.send(world.message(1), world.message(2))
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
        (dead,) = world.dead(consumer)
        assert "HandlerTimedOut: [PB-049]" in dead.headers[letters.REASON]
        assert (world.notes(), consumer.stats.timeouts) == (["2"], 3)

    def test_a_paused_consumer_begins_nothing_and_goes_on_where_it_was(self, world: ConsumerWorld) -> None:
        consumer, entered, go_on = world.consumer(), threading.Event(), threading.Event()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            entered.set()
            assert go_on.wait(WAIT)

        world.send(*[world.message(n) for n in range(3)])
        with consumer.start() as running:
            assert entered.wait(WAIT)
            consumer.pause()
            go_on.set()
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
            world.send(world.message(3))
            with pytest.raises(TimeoutError):
                running.wait_until(lambda: consumer.stats.applied > 1, 0.5)
            assert consumer.paused
            consumer.resume()
            running.wait_until(lambda: consumer.stats.acknowledged == 4, WAIT)
        world.assert_all_acknowledged(consumer)
        assert world.notes() == ["0", "1", "2", "3"]
        assert consumer.stats.duplicates == 0

    def test_a_paused_consumer_can_be_stopped(self, world: ConsumerWorld) -> None:
        consumer = world.consumer_of_things()
        consumer.pause()
        world.send(world.message(1))
        with consumer.start() as running, pytest.raises(TimeoutError):
            running.wait_until(lambda: consumer.stats.received, 0.3)
        assert world.effects() == []

    def test_workers_that_outlast_the_drain_deadline_are_interrupted_and_their_events_come_again(
        self, world: ConsumerWorld
    ) -> None:
        consumer, entered, hang = world.consumer(workers=2, drain=0.3), threading.Event(), [True]

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id)
            entered.set()
            until = time.monotonic() + WAIT
            while hang and time.monotonic() < until:
                time.sleep(0.001)

        world.send(world.message())
        running = consumer.start()
        assert entered.wait(WAIT)
        with pytest.raises(TimeoutError, match="still runs"):
            running.stop()
        until = time.monotonic() + WAIT
        while running.alive and time.monotonic() < until:
            time.sleep(0.01)
        assert (running.alive, world.effects(), world.marks(consumer), consumer.stats.acknowledged) == (False, [], 0, 0)
        hang.clear()
        with consumer.start() as again:
            again.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        assert len(world.effects()) == 1
