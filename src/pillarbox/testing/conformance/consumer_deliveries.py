"""Deliveries, acknowledgements and dead letters: what brokers keep of the consumer's contract."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from ...consume import Received
from ...consume import dead as letters
from ...errors import SourceMissing
from .consumer_world import WAIT, BrokerUnderTest, ConsumerWorld, Crash, Thing, crash_at, write_effect


class DeliveryConformance:
    """Needs the fixtures ``under_test`` and ``database`` of :class:`~.consumer.ConsumerConformance`."""

    @pytest.fixture
    def world(self, under_test: BrokerUnderTest, database: Engine) -> ConsumerWorld:
        """The broker, the database and a source of this test's own."""
        return ConsumerWorld(under_test, database)

    # Once ------------------------------------------------------------------------------------------------------------

    def test_an_event_is_applied_and_everything_it_carries_arrives(self, world: ConsumerWorld) -> None:
        consumer, seen = world.consumer(), list[Received[Thing]]()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            seen.append(event)
            write_effect(session, event.id)

        message = world.message(headers='{"trace":"ünï-☃","empty":""}', key="k-1", schema_version=3)
        world.send(message)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        (event,) = seen
        assert (event.id, event.type, event.version) == (message.event_id, "thing.happened", 3)
        assert (event.aggregate, event.key, event.payload) == (("thing", "7"), "k-1", Thing(1))
        assert event.occurred_at == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        assert event.headers == {"trace": "ünï-☃", "empty": ""}
        assert (event.content_type, event.source) == ("application/json", world.source)
        assert world.effects() == [message.event_id]
        assert world.marks(consumer) == 1

    def test_raw_bytes_arrive_untouched(self, world: ConsumerWorld) -> None:
        consumer, seen = world.consumer(), list[bytes]()

        @consumer.on("thing.happened")
        def handle(event: Received[bytes]) -> None:
            seen.append(event.payload)

        body = bytes(range(256)) * 40
        world.send(world.message(payload=body, content_type="application/octet-stream"), world.message(payload=b""))
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
        assert sorted(seen) == [b"", body]

    def test_an_event_delivered_again_is_not_applied_again(self, world: ConsumerWorld) -> None:
        consumer, message = world.consumer_of_things(), world.message(1)
        world.send(message, message, world.message(2), message)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 4, WAIT)
        world.assert_all_acknowledged(consumer)
        assert world.notes() == ["1", "2"]
        assert (consumer.stats.applied, consumer.stats.duplicates) == (2, 2)

    def test_each_consumer_name_applies_every_event(self, world: ConsumerWorld) -> None:
        world.need("broadcast")
        first, second = world.consumer_of_things(), world.consumer_of_things()
        message = world.message()
        world.send(message)
        with first.start(), second.start() as running:
            running.wait_until(lambda: first.stats.applied == second.stats.applied == 1, WAIT)
        assert world.effects() == [message.event_id] * 2

    def test_events_of_one_key_are_applied_in_order(self, world: ConsumerWorld) -> None:
        consumer, applied = world.consumer(), defaultdict[str | None, list[int]](list)

        @consumer.on("thing.happened")
        def handle(event: Received[Thing]) -> None:
            applied[event.key].append(event.payload.n)
            if event.payload.n == 3 and len(applied[event.key]) == 4:
                raise ConnectionError("a passing failure must not let the next one overtake")

        world.send(*[world.message(n, key=f"k{n % 3}") for n in range(30)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 30, WAIT)
        firsts = {key: list(dict.fromkeys(seen)) for key, seen in applied.items()}
        assert firsts == {key: sorted(seen) for key, seen in firsts.items()}
        assert sum(len(seen) for seen in firsts.values()) == 30

    # Setting aside ---------------------------------------------------------------------------------------------------

    def test_a_poison_message_is_set_aside_with_its_reason_and_the_rest_goes_on(self, world: ConsumerWorld) -> None:
        consumer = world.consumer()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            if event.payload.n == 2:
                raise ValueError("no such\norder ☃")

        poison = world.message(2, headers='{"trace":"t-1"}')
        world.send(world.message(1), poison, world.message(3))
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 3, WAIT)
        world.assert_all_acknowledged(consumer)
        assert world.notes() == ["1", "3"]
        (dead,) = world.dead(consumer)
        assert (dead.body, dead.key) == (poison.payload, poison.key)
        assert (dead.headers["id"], dead.headers["eventType"]) == (poison.event_id, poison.event_type)
        assert dead.headers["trace"] == "t-1"
        assert dead.headers[letters.REASON] == "ValueError: no such order ☃"
        assert dead.headers[letters.ATTEMPTS] == "3"
        assert dead.headers[letters.SOURCE] == world.source
        assert dead.headers[letters.CONSUMER] == consumer.name
        assert dead.headers[letters.POSITION]
        assert datetime.fromisoformat(dead.headers[letters.AT]).utcoffset() is not None
        assert (consumer.stats.applied, consumer.stats.dead, consumer.stats.retried) == (2, 1, 2)

    def test_what_cannot_be_decoded_is_set_aside_at_once(self, world: ConsumerWorld) -> None:
        consumer = world.consumer_of_things()
        world.under_test.send_foreign(world.source, b"\x00\xffhello")
        world.send(
            world.message(payload=b'{"n":"many"}'),
            world.message(payload=b"{"),
            world.message(event_id="x" * 101),
            world.message(7),
        )
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 5, WAIT)
        world.assert_all_acknowledged(consumer)
        dead = world.dead(consumer, at_least=4)
        assert len(dead) == 4
        assert {letter.headers[letters.ATTEMPTS] for letter in dead} == {"1"}
        assert all("PB-016" in letter.headers[letters.REASON] for letter in dead)
        assert b"\x00\xffhello" in {letter.body for letter in dead}
        assert world.notes() == ["7"]
        assert consumer.stats.retried == 0

    def test_an_event_without_handler_is_acknowledged_and_counted(self, world: ConsumerWorld) -> None:
        consumer = world.consumer_of_things()
        world.send(world.message(event_type="something.else"), world.message())
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
        world.assert_all_acknowledged(consumer)
        assert (consumer.stats.unhandled, consumer.stats.applied, consumer.stats.dead) == (1, 1, 0)
        assert world.marks(consumer) == 1

    # Crashes and stops -----------------------------------------------------------------------------------------------

    def test_a_crash_between_commit_and_acknowledgement_delivers_again_and_applies_once(
        self, world: ConsumerWorld
    ) -> None:
        consumer, message = world.consumer_of_things(), world.message()
        world.send(message)
        with crash_at("consumer.after-commit"), pytest.raises(Crash), consumer.start() as running:
            running.wait_until(lambda: False, WAIT)
        assert world.effects() == [message.event_id]
        assert consumer.stats.acknowledged == 0
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        world.assert_all_acknowledged(consumer)
        assert (consumer.stats.applied, consumer.stats.duplicates) == (1, 1)
        assert world.effects() == [message.event_id]

    def test_a_crash_before_the_commit_leaves_nothing_and_the_event_comes_again(self, world: ConsumerWorld) -> None:
        consumer, message = world.consumer_of_things(), world.message()
        world.send(message)
        with crash_at("consumer.after-handler"), pytest.raises(Crash), consumer.start() as running:
            running.wait_until(lambda: False, WAIT)
        assert (world.effects(), world.marks(consumer)) == ([], 0)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        assert world.effects() == [message.event_id]

    def test_a_stop_finishes_the_event_in_progress_and_acknowledges_nothing_else(self, world: ConsumerWorld) -> None:
        """C001: what was fetched and not handled is delivered again at once, in order."""
        consumer, entered, go_on = world.consumer(), threading.Event(), threading.Event()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            if event.payload.n == 2:
                entered.set()
                assert go_on.wait(WAIT)

        world.send(*[world.message(n) for n in range(6)])
        with consumer.start():
            assert entered.wait(WAIT)
            consumer.stop()
            go_on.set()
        assert world.notes() == ["0", "1", "2"]
        assert consumer.stats.acknowledged == 3
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 6, WAIT)
        assert world.notes() == ["0", "1", "2", "3", "4", "5"]
        assert consumer.stats.duplicates == 0

    # Starting --------------------------------------------------------------------------------------------------------

    def test_a_source_that_does_not_exist_is_named_at_the_start(self, world: ConsumerWorld) -> None:
        world.need("missing_sources")
        consumer = world.consumer(sources=["no-such-source-here"])
        consumer.on("thing.happened")(_ignore)
        with pytest.raises(SourceMissing, match=r"PB-042.*no-such-source-here"):
            consumer.run()


def _ignore(event: Received[Thing]) -> None: ...
