"""One event, one transaction: the mark and the handlers' writes. What databases keep of the consumer's contract."""

from __future__ import annotations

from contextlib import suppress

import pytest
from sqlalchemy import Connection, Engine, insert, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ...consume import Received
from ...consume import dead as letters
from .consumer_world import WAIT, BrokerUnderTest, ConsumerWorld, Thing, only_once, write_effect


class TransactionConformance:
    """Needs the fixtures ``under_test`` and ``database`` of :class:`~.consumer.ConsumerConformance`."""

    @pytest.fixture
    def world(self, under_test: BrokerUnderTest, database: Engine) -> ConsumerWorld:
        """The broker, the database and a source of this test's own."""
        return ConsumerWorld(under_test, database)

    def test_a_failing_handler_leaves_nothing_behind_and_is_tried_again(self, world: ConsumerWorld) -> None:
        consumer, tries = world.consumer(), list[int]()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            tries.append(world.marks(consumer))
            write_effect(session, event.id)
            if len(tries) < 3:
                raise ValueError("not yet")

        message = world.message()
        world.send(message)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        assert tries == [0, 0, 0]
        assert (consumer.stats.retried, consumer.stats.applied) == (2, 1)
        assert world.effects() == [message.event_id]

    def test_a_handler_that_swallows_the_error_of_a_statement_loses_no_event(self, world: ConsumerWorld) -> None:
        """PostgreSQL has undone the transaction by then, and answers COMMIT by a rollback without a word."""
        consumer = world.consumer()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id)
            with suppress(SQLAlchemyError):
                session.execute(text("SELECT nothing FROM no_such_table"))

        world.send(world.message())
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        assert (consumer.stats.applied, consumer.stats.dead) in {(1, 0), (0, 1)}
        assert len(world.effects()) == world.marks(consumer) == consumer.stats.applied

    def test_what_may_fail_can_be_tried_in_a_savepoint(self, world: ConsumerWorld) -> None:
        consumer = world.consumer()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id)
            with suppress(SQLAlchemyError), session.begin_nested():
                session.execute(text("SELECT nothing FROM no_such_table"))

        world.send(world.message())
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        assert len(world.effects()) == world.marks(consumer) == consumer.stats.applied == 1

    def test_handlers_of_one_type_share_one_mark_and_one_transaction(self, world: ConsumerWorld) -> None:
        consumer, tries = world.consumer(), list[int]()

        @consumer.on("thing.happened")
        def first(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, "first")

        @consumer.on("thing.happened")
        def second(connection: Connection, event: Received[Thing]) -> None:
            tries.append(1)
            if len(tries) == 1:
                raise ValueError("the first handler's row must go, too")
            connection.execute(insert(only_once).values(name="second"))

        world.send(world.message())
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        assert world.notes() == ["first"]
        assert world.marks(consumer) == 1

    def test_a_unique_violation_in_the_handler_is_a_failure_and_not_already_done(self, world: ConsumerWorld) -> None:
        consumer = world.consumer()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id)
            session.execute(insert(only_once).values(name="the same"))

        one, two = world.message(1), world.message(2)
        world.send(one, two)
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 2, WAIT)
        (dead,) = world.dead(consumer)
        assert "IntegrityError" in dead.headers[letters.REASON]
        assert len(world.effects()) == world.marks(consumer) == 1
        assert {*world.effects(), dead.headers["id"]} == {one.event_id, two.event_id}
        assert consumer.stats.duplicates == 0

    @pytest.mark.parametrize("ending", ["commit", "rollback", "close", "swallowed commit", "connection commit"])
    def test_a_handler_that_ends_the_transaction_itself_is_refused(self, world: ConsumerWorld, ending: str) -> None:
        consumer = world.consumer()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id)
            try:
                owner = session.connection() if "connection" in ending else session
                getattr(owner, ending.split()[-1])()
            except Exception:  # what careless code does
                if "swallowed" not in ending:
                    raise

        world.send(world.message())
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        (dead,) = world.dead(consumer)
        assert "HandlerEndedTransaction: [PB-043]" in dead.headers[letters.REASON]
        assert world.effects() == []
        assert world.marks(consumer) == 0

    def test_savepoints_are_the_handlers_own(self, world: ConsumerWorld) -> None:
        consumer = world.consumer()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, "kept")
            with session.begin_nested():
                write_effect(session, event.id, "released")
            savepoint = session.begin_nested()
            write_effect(session, event.id, "undone")
            savepoint.rollback()

        world.send(world.message())
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        assert world.notes() == ["kept", "released"]
        assert consumer.stats.applied == 1
