"""What the user decides: which errors are worth another attempt, and what becomes of messages nobody is waiting for."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from ...consume import Consumer, Received
from ...consume import dead as letters
from ...errors import CannotDecode, UnknownEventType
from .consumer_world import WAIT, BrokerUnderTest, ConsumerWorld, Thing, write_effect


class NoSuchOrder(LookupError):
    """Never cured by waiting."""


class OldNews(NoSuchOrder):
    """Not even worth a dead letter."""


class PolicyConformance:
    """Needs the fixtures of :class:`~.consumer.ConsumerConformance`."""

    @pytest.fixture
    def world(self, under_test: BrokerUnderTest, database: Engine) -> ConsumerWorld:
        """The broker, the database and a source of this test's own."""
        return ConsumerWorld(under_test, database)

    def test_errors_are_classed_by_their_most_specific_type(self, world: ConsumerWorld) -> None:
        consumer = world.consumer(on_error={LookupError: "retry", NoSuchOrder: "give up", OldNews: "drop"})
        errors = {1: KeyError("x"), 2: NoSuchOrder("y"), 3: OldNews("z"), 4: ValueError("w")}

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            if event.payload.n in errors:
                raise errors[event.payload.n]

        sent = [world.message(n, key=f"k{n}") for n in range(6)]
        world.send(*sent)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 6, WAIT)
        world.assert_all_acknowledged(consumer)
        assert sorted(world.notes()) == ["0", "5"]
        assert world.marks(consumer) == 2
        attempts = {
            letter.headers["id"]: letter.headers[letters.ATTEMPTS] for letter in world.dead(consumer, at_least=3)
        }
        assert attempts == {sent[1].event_id: "3", sent[2].event_id: "1", sent[4].event_id: "3"}
        assert (consumer.stats.discarded, consumer.stats.dead, consumer.stats.retried) == (1, 3, 4)

    def test_foreign_messages_can_be_skipped_and_are_counted_but_not_an_event_that_does_not_fit(
        self, world: ConsumerWorld
    ) -> None:
        consumer = world.consumer_of_things(foreign="skip")
        world.under_test.send_foreign(world.source, b"\x00\xffhello")
        world.send(
            world.message(payload=b"{"),
            world.message(content_type="text/csv"),
            world.message(payload=b'{"n":"many"}'),
            world.message(7),
        )
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 5, WAIT)
        world.assert_all_acknowledged(consumer)
        (dead,) = world.dead(consumer)
        assert dead.body == b'{"n":"many"}'
        assert (consumer.stats.skipped, consumer.stats.dead, world.notes()) == (3, 1, ["7"])

    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_foreign_message_can_end_the_consumer_and_stays_with_the_broker(
        self, world: ConsumerWorld, workers: int
    ) -> None:
        world.under_test.send_foreign(world.source, b"hello")
        consumer = world.consumer_of_things("strict", foreign="raise", workers=workers)
        with pytest.raises(CannotDecode, match="PB-016"), consumer.start() as running:
            running.wait_until(lambda: False, WAIT)
        assert consumer.stats.acknowledged == 0
        lenient = world.consumer_of_things("strict", foreign="skip")
        with lenient.start() as running:
            running.wait_until(lambda: lenient.stats.skipped == lenient.stats.acknowledged == 1, WAIT)

    def test_events_of_an_unknown_type_can_be_set_aside(self, world: ConsumerWorld) -> None:
        consumer = world.consumer_of_things(unknown="set aside")
        world.send(world.message(event_type="something.else"), world.message(2))
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
        (dead,) = world.dead(consumer)
        assert "PB-048" in dead.headers[letters.REASON]
        assert (consumer.stats.unhandled, consumer.stats.dead, world.notes()) == (0, 1, ["2"])

    def test_an_event_of_an_unknown_type_can_end_the_consumer_and_stays_with_the_broker(
        self, world: ConsumerWorld
    ) -> None:
        world.send(world.message(event_type="something.else"))
        consumer = world.consumer_of_things("strict", unknown="raise")
        with pytest.raises(UnknownEventType, match=r"PB-048.*something\.else"), consumer.start() as running:
            running.wait_until(lambda: False, WAIT)
        later = Consumer("strict", database=world.database, broker=world.under_test.broker, sources=[world.source])

        @later.on("something.else")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, "now there is one")

        with later.start() as running:
            running.wait_until(lambda: later.stats.acknowledged == 1, WAIT)
        assert world.notes() == ["now there is one"]
