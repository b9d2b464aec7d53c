"""Failed events that wait at the broker: their key goes on, they come again to this consumer with their attempts."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from ...consume import Received
from ...consume import dead as letters
from ...policy.retry import RetryPolicy
from .consumer_world import WAIT, BrokerUnderTest, ConsumerWorld, Thing, write_effect

SHORT = RetryPolicy(base=0.5, cap=0.5, max_attempts=3, jitter=False)
LONG = RetryPolicy(base=3.0, cap=3.0, max_attempts=3, jitter=False)  # longer than a stop takes


class RetryInBrokerConformance:
    """Needs the fixtures of :class:`~.consumer.ConsumerConformance`."""

    @pytest.fixture
    def world(self, under_test: BrokerUnderTest, database: Engine) -> ConsumerWorld:
        """The broker, the database and a source of this test's own."""
        return ConsumerWorld(under_test, database)

    @pytest.mark.parametrize("batch", [1, 10])
    def test_a_failed_event_comes_again_as_it_was_and_its_key_does_not_wait(
        self, world: ConsumerWorld, batch: int
    ) -> None:
        consumer, seen = world.consumer(retry=SHORT, retry_in="broker", batch=batch), list[Received[Thing]]()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            if event.payload.n == 1:
                seen.append(event)
            write_effect(session, event.id, str(event.payload.n))
            if event.payload.n == 1 and len(seen) <= 1 + consumer.stats.split:
                raise ConnectionError("once")

        message = world.message(1, headers='{"trace":"t-1"}', key="k")
        world.send(message, *[world.message(n, key="k") for n in (2, 3)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 4, WAIT)
        world.assert_all_acknowledged(consumer)
        assert world.notes() == ["2", "3", "1"]
        again = seen[-1]
        assert (again.id, again.key, again.source) == (message.event_id, "k", world.source)
        assert (again.payload, again.headers["trace"]) == (Thing(1), "t-1")
        assert (consumer.stats.received, consumer.stats.retried, consumer.stats.applied) == (4, 1, 3)

    def test_attempts_are_counted_across_returns_and_the_dead_letter_tells_all(self, world: ConsumerWorld) -> None:
        consumer, tries = world.consumer(retry=SHORT, retry_in="broker"), list[int]()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            tries.append(1)
            raise ConnectionError("never")

        message = world.message(1)
        world.send(message)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 3, WAIT)
        world.assert_all_acknowledged(consumer)
        (dead,) = world.dead(consumer)
        assert (dead.headers["id"], dead.headers[letters.ATTEMPTS], len(tries)) == (message.event_id, "3", 3)
        assert dead.headers[letters.SOURCE] == world.source
        assert (consumer.stats.retried, consumer.stats.dead) == (2, 1)

    def test_what_waits_at_the_broker_outlives_the_consumer(self, world: ConsumerWorld) -> None:
        name, message = world.consumer_of_things().name, world.message(1)
        first = world.consumer(name, retry=LONG, retry_in="broker")

        @first.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            raise ConnectionError("not here")

        world.send(message)
        with first.start() as running:
            running.wait_until(lambda: first.stats.retried == 1, WAIT)
        second = world.consumer_of_things(name, retry=SHORT, retry_in="broker")
        with second.start() as running:
            running.wait_until(lambda: second.stats.acknowledged == 1, WAIT)
        assert world.effects() == [message.event_id]
