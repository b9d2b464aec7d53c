"""Rebalances under a consumer with workers: partitions move while handlers work, and keys keep their order."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from pillarbox import Consumer, Received, RetryPolicy
from pillarbox.testing.conformance.consumer_world import ConsumerWorld, Thing, write_effect
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_kafka import Kafka
from tests.services_fixtures import MakeTopic

EVENTS, KEYS = 400, 20
WAIT = 60


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


@pytest.fixture
def world(kafka_url: str, kafka_admin: AdminClient, make_topic: MakeTopic, database: Engine) -> Iterator[ConsumerWorld]:
    kafka = Kafka(kafka_url, kafka_admin, make_topic)
    yield ConsumerWorld(kafka, database)
    kafka.clean_up()


@pytest.mark.parametrize("batch", [1, 5])
def test_members_that_come_and_go_keep_the_order_of_keys_and_apply_each_event_once(
    world: ConsumerWorld, batch: int
) -> None:
    failed = set[int]()

    def member() -> Consumer:
        quick = RetryPolicy(base=0.05, cap=0.2, max_attempts=5)
        consumer = world.consumer("moving", workers=3, batch=batch, retry=quick)

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            time.sleep(0.005)  # what a handler does
            write_effect(session, event.id, f"{event.key} {event.payload.n}")
            if event.payload.n % 37 == 5 and event.payload.n not in failed:
                failed.add(event.payload.n)
                raise ConnectionError("once, and its key waits, perhaps for another member")

        return consumer

    first, second = member(), member()
    sent = [world.message(n, key=f"k{n % KEYS}") for n in range(EVENTS)]
    world.send(*sent[: EVENTS // 2])
    with first.start() as one:
        one.wait_until(lambda: first.stats.applied > 30, WAIT)
        with second.start() as two:
            world.send(*sent[EVENTS // 2 :])
            two.wait_until(lambda: second.stats.applied > 30 or len(world.effects()) == EVENTS, WAIT)
            one.stop()
            two.wait_until(lambda: len(world.effects()) == EVENTS, WAIT)
    world.assert_all_acknowledged(second)
    by_key = defaultdict[str, list[int]](list)
    for note in world.notes():
        key, number = note.split()
        by_key[key].append(int(number))
    assert by_key == {f"k{k}": list(range(k, EVENTS, KEYS)) for k in range(KEYS)}
    assert first.stats.dead == second.stats.dead == 0


def test_a_handler_that_works_while_its_partition_moves_may_finish_and_is_not_acknowledged_as_owned(
    world: ConsumerWorld,
) -> None:
    """Its commit stands; the new owner is delivered the event again, and finds the mark."""
    first, entered, go_on = world.consumer("moving-2", workers=2), threading.Event(), threading.Event()
    handled = list[str]()

    @first.on("thing.happened")
    def slow(event: Received[Thing], session: Session) -> None:
        write_effect(session, event.id, "first")
        entered.set()
        assert go_on.wait(WAIT)
        handled.append(event.id)

    second = world.consumer_of_things("moving-2", workers=2)
    world.send(*[world.message(n, key=f"k{n}") for n in range(30)])
    with first.start():
        assert entered.wait(WAIT)
        with second.start() as two:
            two.wait_until(lambda: second.stats.received > 0, WAIT)  # some partitions have moved
            go_on.set()
            two.wait_until(lambda: len(world.effects()) == 30, WAIT)
    assert len(set(world.effects())) == 30
    assert world.marks(first) == 30
    assert sorted(event_id for event_id in world.effects() if event_id in handled)  # those that finished stand
