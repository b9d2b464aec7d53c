"""Many events in one transaction: together where nothing fails, each alone where something does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress

import pytest
from sqlalchemy import Engine, insert, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ...consume import Received
from ...consume import dead as letters
from .consumer_world import WAIT, BrokerUnderTest, ConsumerWorld, Crash, Thing, crash_at, effect, write_effect


class BatchConformance:
    """Needs the fixtures of :class:`~.consumer.ConsumerConformance`."""

    @pytest.fixture
    def world(self, under_test: BrokerUnderTest, database: Engine) -> ConsumerWorld:
        """The broker, the database and a source of this test's own."""
        return ConsumerWorld(under_test, database)

    def test_many_events_share_a_transaction_and_are_handed_over_together(self, world: ConsumerWorld) -> None:
        consumer, sizes = world.consumer(batch=50), list[int]()

        @consumer.on_batch("thing.happened")
        def handle(events: list[Received[Thing]], session: Session) -> None:
            sizes.append(len(events))
            rows = [{"event_id": event.id, "note": str(event.payload.n)} for event in events]
            session.execute(insert(effect), rows)

        world.send(*[world.message(n, key=f"k{n % 7}") for n in range(100)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 100, WAIT)
        world.assert_all_acknowledged(consumer)
        assert sum(sizes) == world.marks(consumer) == consumer.stats.applied == 100
        assert 10 < max(sizes) <= 50
        for k in range(7):
            own = [int(note) for note in world.notes() if int(note) % 7 == k]
            assert own == list(range(k, 100, 7))

    def test_handlers_of_single_events_share_the_transaction_of_their_batch(self, world: ConsumerWorld) -> None:
        consumer, sessions = world.consumer(batch=20), list[Session]()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            sessions.append(session)
            write_effect(session, event.id, str(event.payload.n))

        world.send(*[world.message(n) for n in range(20)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 20, WAIT)
        assert world.notes() == [str(n) for n in range(20)]
        assert len({id(session) for session in sessions}) < 20

    def test_one_bad_event_fails_its_batch_once_and_is_tried_alone_from_then_on(self, world: ConsumerWorld) -> None:
        consumer, calls = world.consumer(batch=20), Counter[int]()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            calls[event.payload.n] += 1
            write_effect(session, event.id, str(event.payload.n))
            if event.payload.n == 5:
                raise ValueError("never")

        world.send(*[world.message(n, key=f"k{n}") for n in range(10)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 10, WAIT)
        world.assert_all_acknowledged(consumer)
        assert sorted(world.notes()) == [str(n) for n in range(10) if n != 5]
        (dead,) = world.dead(consumer)
        assert dead.headers[letters.ATTEMPTS] == "3"
        assert world.marks(consumer) == consumer.stats.applied == 9
        assert consumer.stats.split <= 1
        assert calls.pop(5) == 3 + consumer.stats.split
        assert max(calls.values()) <= 1 + consumer.stats.split

    def test_the_events_behind_a_failing_one_of_their_key_wait_for_it(self, world: ConsumerWorld) -> None:
        consumer, failed = world.consumer(batch=20), list[int]()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, f"{event.key} {event.payload.n}")
            if event.payload.n == 3 and len(failed) < 2:
                failed.append(1)
                raise ConnectionError("twice")

        world.send(*[world.message(n, key="odd" if n % 2 else "even") for n in range(10)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 10, WAIT)
        by_key = defaultdict[str, list[str]](list)
        for note in world.notes():
            by_key[note.split()[0]].append(note.split()[1])
        assert by_key == {"even": list("02468"), "odd": list("13579")}

    def test_a_copy_in_the_same_batch_and_one_in_a_later_batch_are_duplicates(self, world: ConsumerWorld) -> None:
        consumer, one = world.consumer_of_things(batch=10), world.message(1)
        world.send(one, world.message(2), one, world.message(3), *[one] * 97)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 101, WAIT)
        world.assert_all_acknowledged(consumer)
        assert sorted(world.notes()) == ["1", "2", "3"]
        assert (consumer.stats.applied, consumer.stats.duplicates) == (3, 98)

    def test_events_of_one_key_and_different_types_are_handled_in_order(self, world: ConsumerWorld) -> None:
        consumer = world.consumer(batch=50)

        def write(events: Sequence[Received[Thing]], session: Session) -> None:
            for event in events:
                write_effect(session, event.id, f"{event.key} {event.payload.n}")

        @consumer.on_batch("thing.happened")
        def happened(events: list[Received[Thing]], session: Session) -> None:
            write(events, session)

        @consumer.on_batch("thing.ended")
        def ended(session: Session, events: Sequence[Received[Thing]]) -> None:
            write(events, session)

        kinds = ["thing.happened", "thing.ended"]
        world.send(*[world.message(n, key=f"k{n % 3}", event_type=kinds[n // 5 % 2]) for n in range(40)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 40, WAIT)
        for k in range(3):
            assert [int(note[3:]) for note in world.notes() if note.startswith(f"k{k}")] == list(range(k, 40, 3))

    def test_what_cannot_be_decoded_does_not_fail_the_batch_it_came_with(self, world: ConsumerWorld) -> None:
        consumer = world.consumer_of_things(batch=10)
        world.send(world.message(1), world.message(payload=b"{"), world.message(event_type="other"), world.message(4))
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 4, WAIT)
        assert sorted(world.notes()) == ["1", "4"]
        assert (consumer.stats.dead, consumer.stats.unhandled, consumer.stats.split) == (1, 1, 0)

    @pytest.mark.parametrize("point", ["consumer.after-handler", "consumer.after-commit"])
    def test_a_crash_applies_a_batch_once_all_of_it_or_nothing(self, world: ConsumerWorld, point: str) -> None:
        consumer = world.consumer_of_things(batch=10)
        world.send(*[world.message(n) for n in range(5)])
        with crash_at(point), pytest.raises(Crash), consumer.start() as running:
            running.wait_until(lambda: False, WAIT)
        assert len(world.effects()) == world.marks(consumer)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 5, WAIT)
        world.assert_all_acknowledged(consumer)
        assert sorted(world.notes()) == [str(n) for n in range(5)]


class BatchTransactionConformance:
    """The part that databases keep. Needs the same fixtures."""

    @pytest.fixture
    def world(self, under_test: BrokerUnderTest, database: Engine) -> ConsumerWorld:
        """The broker, the database and a source of this test's own."""
        return ConsumerWorld(under_test, database)

    def test_one_of_many_that_fails_leaves_nothing_of_itself_and_all_of_the_others(self, world: ConsumerWorld) -> None:
        consumer = world.consumer(batch=20)

        @consumer.on_batch("thing.happened")
        def handle(events: list[Received[Thing]], session: Session) -> None:
            for event in events:
                write_effect(session, event.id, str(event.payload.n))
            if any(event.payload.n == 3 for event in events):
                raise ValueError("never")

        known = world.message(0)
        world.send(known, *[world.message(n, key=f"k{n}") for n in range(1, 8)], known)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 9, WAIT)
        assert sorted(world.notes()) == list("0124567")
        assert (world.marks(consumer), consumer.stats.dead, consumer.stats.duplicates) == (7, 1, 1)

    @pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
    def test_a_handler_that_ends_the_transaction_of_a_batch_is_refused_and_singled_out(
        self, world: ConsumerWorld, ending: str
    ) -> None:
        consumer = world.consumer(batch=20)

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            if event.payload.n == 2:
                getattr(session, ending)()

        world.send(*[world.message(n, key=f"k{n}") for n in range(5)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 5, WAIT)
        (dead,) = world.dead(consumer)
        assert "HandlerEndedTransaction: [PB-043]" in dead.headers[letters.REASON]
        assert sorted(world.notes()) == list("0134")
        assert world.marks(consumer) == 4

    def test_an_error_swallowed_by_one_handler_of_a_batch_loses_no_event(self, world: ConsumerWorld) -> None:
        """PostgreSQL has undone the whole batch by then, and answers COMMIT by a rollback without a word."""
        consumer = world.consumer(batch=20)

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            if event.payload.n == 2:
                with suppress(SQLAlchemyError):
                    session.execute(text("SELECT nothing FROM no_such_table"))

        world.send(*[world.message(n, key=f"k{n}") for n in range(5)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 5, WAIT)
        assert (consumer.stats.applied, consumer.stats.dead) in {(5, 0), (4, 1)}
        assert len(world.effects()) == world.marks(consumer) == consumer.stats.applied
