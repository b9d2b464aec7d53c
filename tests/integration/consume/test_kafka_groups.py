"""Kafka groups: members come, go and are slow, and every event is applied once, in the order of its key."""

import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as Client
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy.orm import Session

from pillarbox import Consumer, Received, RetryPolicy
from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.kafka import KafkaSource
from pillarbox.errors import BadConsumer, BadUrl, BrokerUnavailable
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_world import ConsumerWorld, Thing, write_effect
from tests.conformance.test_consumer_kafka import Kafka
from tests.servers import bootstrap_of
from tests.services_fixtures import MakeTopic

QUICK_GROUP = {"config": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "max.poll.interval.ms": 6000}}


@pytest.fixture
def world(kafka_url: str, kafka_admin: AdminClient, make_topic: MakeTopic, tmp_path: Path) -> Iterator[ConsumerWorld]:
    engine = consumer_engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    install(engine, ["inbox"])
    under_test = Kafka(kafka_url, kafka_admin, make_topic)
    yield ConsumerWorld(under_test, engine)
    under_test.clean_up()
    engine.dispose()


def things_in_order(consumer: Consumer, seen: dict[str | None, list[int]], pause: float = 0.0) -> None:
    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        time.sleep(pause)
        write_effect(session, event.id, str(event.payload.n))
        seen[event.key].append(event.payload.n)


def test_a_second_member_takes_over_partitions_and_nothing_is_lost_doubled_or_reordered(world: ConsumerWorld) -> None:
    seen: dict[str | None, list[int]] = defaultdict(list)
    first, second = world.consumer("shared", options=QUICK_GROUP), world.consumer("shared", options=QUICK_GROUP)
    for consumer in (first, second):
        things_in_order(consumer, seen, pause=0.002)
    numbers = count()

    def send(number: int) -> None:
        world.send(*[world.message(n, key=f"k{n % 12}") for n in islice(numbers, number)])

    send(300)
    with first.start() as running:
        running.wait_until(lambda: first.stats.applied > 20, 30)
        with second.start():
            running.wait_until(lambda: send(6) or second.stats.applied > 20, 30)
            sent = next(numbers)
            running.wait_until(lambda: len(world.effects()) == sent, 40)
    world.assert_all_acknowledged(first)
    assert sorted(map(int, world.notes())) == list(range(sent))
    for ran in seen.values():
        firsts = list(dict.fromkeys(ran))
        assert firsts == sorted(firsts)


def test_waiting_for_a_retry_keeps_the_partitions_and_a_handler_that_is_too_slow_loses_them(
    world: ConsumerWorld,
) -> None:
    """Both beyond max.poll.interval.ms: a waiting member polls paused partitions, a working one cannot.

    What the slow one did stands, and is recognised when it comes again.
    """
    waiting = world.consumer(options=QUICK_GROUP, retry=RetryPolicy(base=7.5, cap=7.5, jitter=False))
    slow = world.consumer(options=QUICK_GROUP)
    tries, runs = list[float](), list[int]()

    @waiting.on("thing.happened")
    def fails_once(event: Received[Thing], session: Session) -> None:
        tries.append(time.monotonic())
        write_effect(session, event.id, "waiting")
        if len(tries) == 1:
            raise ConnectionError("away for a while")

    @slow.on("thing.happened")
    def sleeps_once(event: Received[Thing], session: Session) -> None:
        runs.append(event.payload.n)
        if len(runs) == 1:
            time.sleep(7.5)
        write_effect(session, event.id, "slow")

    world.send(world.message(1), world.message(2))
    with waiting.start() as running, slow.start():
        running.wait_until(lambda: waiting.stats.acknowledged == 2 and slow.stats.duplicates >= 1, 40)
    assert tries[1] - tries[0] >= 7.5
    assert (waiting.stats.dropped, waiting.stats.received, waiting.stats.duplicates) == (0, 2, 0)
    assert runs == [1, 2]
    assert sorted(world.notes()) == ["slow", "slow", "waiting", "waiting"]
    world.assert_all_acknowledged(waiting)
    world.assert_all_acknowledged(slow)


def test_foreign_bytes_in_keys_and_headers_reach_the_dead_letter_topic_as_they_were(
    world: ConsumerWorld, kafka_url: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_of(kafka_url)})
    headers: Any = [("raw", b"\xff\x00"), ("none", None), ("twice", b"1"), ("twice", b"2")]
    producer.produce(world.source, None, b"\xfekey", headers=headers)
    assert producer.flush(20) == 0
    consumer = world.consumer_of_things()
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.dead == 1, 30)
    client = Client({"bootstrap.servers": bootstrap_of(kafka_url), "group.id": "nobody", "log_level": 0})
    client.assign([TopicPartition(f"{world.source}.{consumer.name}.dead", 0, 0)])
    message = client.poll(20)
    assert message is not None
    assert (message.key(), message.value(), (message.headers() or [])[:4]) == (b"\xfekey", None, headers)
    client.close()


def test_a_cluster_that_is_away_at_the_start_is_a_clear_error(sqlite_url: str) -> None:
    engine = consumer_engine(sqlite_url)
    install(engine, ["inbox"])
    consumer = Consumer(
        "x", database=engine, broker="kafka://127.0.0.1:1", sources=["orders"], options={"deadline": 1.0}
    )
    consumer.on("thing.happened")(_ignore)
    started = time.monotonic()
    with pytest.raises(BrokerUnavailable, match="PB-005"):
        consumer.run()
    assert time.monotonic() - started < 10
    engine.dispose()


def test_settings_that_would_break_the_promise_are_refused() -> None:
    for name in ("group.id", "enable.auto.commit"):
        with pytest.raises(BadUrl, match=name):
            KafkaSource.from_url(f"kafka://nowhere?{name}=x", "c", ["orders"])
    source = KafkaSource.from_url("kafka://nowhere", "c", ["orders"], config={"no.such.setting": 1})
    with pytest.raises(BadUrl, match=r"no\.such\.setting"):
        source.open()
    source.close()


def test_a_dead_letter_topic_with_too_long_a_name_is_refused(world: ConsumerWorld, kafka_url: str) -> None:
    source = KafkaSource.from_url(kafka_url, "c" * 240, [world.source])
    with pytest.raises(BadConsumer, match="Shorten"):
        source.open()
    source.close()


def _ignore(event: Received[Thing]) -> None: ...
