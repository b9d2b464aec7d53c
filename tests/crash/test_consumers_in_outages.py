"""A broker that is away for a minute while consumers work: nothing lost, nothing twice, no event charged."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from pillarbox import Received
from pillarbox.testing.conformance.consumer_world import BrokerUnderTest, ConsumerWorld, Thing, write_effect
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_kafka import Kafka
from tests.conformance.test_consumer_rabbitmq import Rabbit
from tests.kafka_broker import kafka_broker
from tests.own_rabbitmq import own_rabbitmq
from tests.servers import unique

pytestmark = [pytest.mark.services, pytest.mark.long, pytest.mark.timeout(300)]

AWAY = 60.0
BEFORE, AFTER, KEYS = 400, 100, 12


@dataclass(frozen=True)
class Own:
    """A broker that is this test's: what the suite is given of it, now and after a restart, and its switch."""

    world: Callable[[], BrokerUnderTest]
    stop: Callable[[], None]
    start: Callable[[], None]


@contextmanager
def rabbitmq() -> Iterator[Own]:
    with own_rabbitmq() as node:
        parts = node.parts()
        yield Own(lambda: Rabbit(node.url), lambda: parts["rabbitmq"].end(seconds=30), node.start)


@contextmanager
def kafka() -> Iterator[Own]:
    with kafka_broker() as broker:
        under_test = Kafka(f"kafka://{broker.direct}", broker.admin(), lambda n=6, **_: broker.topic(unique("t"), n))
        yield Own(lambda: under_test, broker.kill, broker.start)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


@pytest.mark.parametrize("broker", [rabbitmq, kafka], ids=["rabbitmq", "kafka"])
@pytest.mark.parametrize("mode", [{"workers": 3}, {"batch": 10}], ids=["workers", "batch"])
def test_a_consumer_waits_a_minute_for_its_broker_and_goes_on(
    engine: Engine, broker: Callable[[], AbstractContextManager[Own]], mode: dict[str, int]
) -> None:
    """M12: what was in hand is finished, what was not acknowledged comes again and is found by its mark."""
    ran: dict[str | None, list[int]] = defaultdict(list)
    with broker() as own:
        world = ConsumerWorld(own.world(), engine)
        consumer = world.consumer(**mode)

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            time.sleep(0.03)
            write_effect(session, event.id, str(event.payload.n))
            ran[event.key].append(event.payload.n)

        sent = [world.message(n, key=f"k{n % KEYS}") for n in range(BEFORE + AFTER)]
        world.send(*sent[:BEFORE])
        with consumer.start() as running:
            running.wait_until(lambda: consumer.stats.applied > BEFORE / 10, 60)
            assert consumer.stats.applied < BEFORE, "it was over before the outage began"
            own.stop()
            time.sleep(AWAY)  # the outage itself
            own.start()
            world.under_test = own.world()
            world.send(*sent[BEFORE:])
            running.wait_until(lambda: len(world.effects()) >= len(sent), 90)
        world.assert_all_acknowledged(consumer, timeout=30)
        assert sorted(world.effects()) == sorted(one.event_id for one in sent), "lost or twice"
        # Kafka's client hides the outage itself; that much comes again, and is known, it cannot hide.
        assert consumer.stats.broker_away + consumer.stats.duplicates > 0, "it did not notice"
        assert (consumer.stats.dead, consumer.stats.retried, consumer.stats.discarded) == (0, 0, 0)
        for key, numbers in ran.items():
            assert list(dict.fromkeys(numbers)) == sorted(set(numbers)), key
