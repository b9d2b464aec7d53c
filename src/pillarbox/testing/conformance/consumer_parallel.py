"""Several handlers at once: what keeps its order, what does not wait, and what is acknowledged."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from ...consume import Received
from ...policy.retry import RetryPolicy
from .consumer_world import WAIT, BrokerUnderTest, ConsumerWorld, Crash, Thing, crash_at, write_effect

SLOW_RETRY = RetryPolicy(base=1.0, cap=1.0, max_attempts=3, jitter=False)


class ParallelConformance:
    """Needs the fixtures of :class:`~.consumer.ConsumerConformance`; the database must let writers work side by side,
    and its engine have eight connections."""

    @pytest.fixture
    def world(self, under_test: BrokerUnderTest, database: Engine) -> ConsumerWorld:
        """The broker, the database and a source of this test's own."""
        return ConsumerWorld(under_test, database)

    def test_events_of_different_keys_are_handled_at_the_same_time(self, world: ConsumerWorld) -> None:
        consumer, meet = world.consumer(workers=3), threading.Barrier(3)

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            meet.wait(WAIT)
            write_effect(session, event.id, str(event.payload.n))

        world.send(*[world.message(n, key=key) for n, key in enumerate(["a", "b", None])])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 3, WAIT)
        world.assert_all_acknowledged(consumer)
        assert sorted(world.notes()) == ["0", "1", "2"]

    def test_events_of_one_key_keep_their_order_and_are_handled_one_at_a_time(self, world: ConsumerWorld) -> None:
        consumer, seen, inside = world.consumer(workers=4), defaultdict[str | None, list[int]](list), set[str | None]()
        together = list[str | None]()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            if event.key in inside:
                together.append(event.key)
            inside.add(event.key)
            first = event.payload.n not in seen[event.key]
            seen[event.key].append(event.payload.n)
            write_effect(session, event.id, str(event.payload.n))
            inside.discard(event.key)
            if event.payload.n % 10 == 5 and first:
                raise ConnectionError("a passing failure must not let the next one of its key overtake")

        world.send(*[world.message(n, key=f"k{n % 5}") for n in range(60)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 60, WAIT)
        world.assert_all_acknowledged(consumer)
        assert together == []
        firsts = {key: list(dict.fromkeys(numbers)) for key, numbers in seen.items()}
        assert firsts == {f"k{k}": list(range(k, 60, 5)) for k in range(5)}
        assert (consumer.stats.applied, consumer.stats.retried) == (60, 6)
        assert sorted(map(int, world.notes())) == list(range(60))

    @pytest.mark.parametrize("workers", [1, 3])
    def test_a_failing_event_waits_with_its_key_and_the_other_keys_go_on(
        self, world: ConsumerWorld, workers: int
    ) -> None:
        consumer, failed = world.consumer(workers=workers, retry=SLOW_RETRY), threading.Event()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            if event.payload.n == 0 and not failed.is_set():
                failed.set()
                raise ConnectionError("once")
            write_effect(session, event.id, str(event.payload.n))

        world.send(*[world.message(n, key="stuck" if n < 3 else f"k{n}") for n in range(8)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 8, WAIT)
        notes = world.notes()
        assert [note for note in notes if note in "012"] == ["0", "1", "2"]
        assert set(notes[:5]) == {"3", "4", "5", "6", "7"}
        assert (consumer.stats.applied, consumer.stats.retried) == (8, 1)

    def test_a_stop_finishes_all_handlers_in_progress_and_acknowledges_nothing_else(self, world: ConsumerWorld) -> None:
        consumer, entered, go_on = world.consumer(workers=2), threading.Semaphore(0), threading.Event()

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            entered.release()
            assert go_on.wait(WAIT)

        world.send(*[world.message(n, key=f"k{n}") for n in range(6)])
        with consumer.start():
            assert all(entered.acquire(timeout=WAIT) for _ in range(2))
            consumer.stop()
            go_on.set()
        assert len(world.effects()) == consumer.stats.acknowledged == 2
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.applied == 6, WAIT)
        world.assert_all_acknowledged(consumer)
        assert len(set(world.effects())) == len(world.effects()) == 6

    def test_a_worker_that_crashes_ends_the_consumer_and_the_event_is_applied_once(self, world: ConsumerWorld) -> None:
        consumer, message = world.consumer_of_things(workers=2), world.message()
        world.send(message)
        with crash_at("consumer.after-commit"), pytest.raises(Crash), consumer.start() as running:
            running.wait_until(lambda: False, WAIT)
        assert consumer.stats.acknowledged == 0
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 1, WAIT)
        assert (world.effects(), consumer.stats.duplicates) == ([message.event_id], 1)

    def test_what_is_given_up_is_set_aside_while_others_are_handled(self, world: ConsumerWorld) -> None:
        consumer = world.consumer(workers=3)

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))
            if event.payload.n % 4 == 0:
                raise ValueError("never")

        world.send(*[world.message(n, key=f"k{n % 3}") for n in range(12)])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.acknowledged == 12, WAIT)
        world.assert_all_acknowledged(consumer)
        assert len(world.dead(consumer, at_least=3)) == consumer.stats.dead == 3
        assert sorted(map(int, world.notes())) == [n for n in range(12) if n % 4]
