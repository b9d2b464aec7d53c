"""The retry topics of a Kafka consumer: read ahead up to a bound, and emptied of what is done with."""

import time
from uuid import uuid4

import pytest
from confluent_kafka import Consumer as Client
from confluent_kafka import Producer, TopicPartition

from pillarbox.consume.kafka import KafkaSource
from pillarbox.consume.waiting import WaitingRoom
from pillarbox.ports import Incoming
from tests.kafka_broker import KafkaBroker


def opened(broker: KafkaBroker, consumer: str, messages: int) -> KafkaSource:
    """A member of the consumer, on a new topic with so many messages."""
    topic = broker.topic(f"t-{uuid4().hex[:8]}")
    producer = Producer({"bootstrap.servers": broker.direct, "log_level": 0})
    for number in range(messages):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(20) == 0
    source = KafkaSource.from_url(broker.url, consumer, [topic])
    source.open()
    return source


def fetch(member: KafkaSource, number: int) -> list[Incoming]:
    found: list[Incoming] = []
    deadline = time.monotonic() + 30
    while len(found) < number:
        assert time.monotonic() < deadline, len(found)
        found += member.poll(0.1, number - len(found))
    return found


def test_what_is_done_with_is_deleted_from_the_retry_topic_and_what_waits_is_kept(
    lone_kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.consume.kafka.purging.EVERY_SECONDS", 0.2)
    member = opened(lone_kafka, "purging", 3)
    for number, incoming in enumerate(fetch(member, 3)):
        member.put_back(incoming, 600.0 if number == 2 else 0.1, "again", 1)
        member.acknowledge([incoming])
    done = fetch(member, 2)
    member.acknowledge(done)
    place = TopicPartition(f"{done[0].source}.purging.retry", 0)
    client = Client({"bootstrap.servers": lone_kafka.direct, "group.id": "looking"})
    deadline = time.monotonic() + 20
    while client.get_watermark_offsets(place, timeout=10) != (2, 3):
        assert time.monotonic() < deadline, client.get_watermark_offsets(place, timeout=10)
        member.poll(0.2, 0)
    client.close()
    member.close()


def test_more_than_there_is_room_for_waits_in_the_topic_and_comes_all_the_same(lone_kafka: KafkaBroker) -> None:
    member = opened(lone_kafka, "bounded", 12)
    member._room = WaitingRoom(most=3)
    for incoming in fetch(member, 12):
        member.put_back(incoming, 3.0, "again", 1)
        member.acknowledge([incoming])
    deadline = time.monotonic() + 20
    while not member._paused:
        assert time.monotonic() < deadline
        assert member.poll(0.1, 10) == []
    assert {topic for topic, _ in member._paused} == set(member._retries)
    again = fetch(member, 12)
    assert sorted(int(one.body) for one in again) == list(range(12))
    member.acknowledge(again)
    member.close()
