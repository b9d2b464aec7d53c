"""An idempotent producer breaks for good when the broker has lost what it had confirmed: the next one goes on."""

import os
import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from pillarbox.event.destination import Topic
from pillarbox.ports import Confirmed, Unknown
from pillarbox.publish.kafka import KafkaPublisher
from pillarbox.testing.conformance.publisher_order import in_order, resend
from pillarbox.testing.conformance.publisher_world import Arrived, messages
from tests.kafka_broker import KafkaBroker
from tests.servers import unique

pytestmark = pytest.mark.services


@pytest.mark.timeout(240)
def test_a_broken_producer_is_replaced_and_what_it_had_is_sent_again_in_order(lone_kafka: KafkaBroker) -> None:
    """The broker dies and its disk has lost the tail of the log: OUT_OF_ORDER_SEQUENCE_NUMBER, a fatal error.

    It takes a restart of the broker, most of the time that this test needs.
    """
    loose, ordered = Topic(lone_kafka.topic(unique("t"))), Topic(lone_kafka.topic(unique("t")))
    with (
        closing(KafkaPublisher.from_url(lone_kafka.url, deadline=10)) as publisher,
        closing(KafkaPublisher.from_url(lone_kafka.url, deadline=10)) as in_turn,
    ):
        for _ in range(20):
            assert set(map(type, publisher.publish(messages(loose, 10)))) == {Confirmed}
            assert set(map(type, in_turn.publish_in_order(messages(ordered, 10)))) == {Confirmed}
        lose_the_tail(lone_kafka, loose.name, ordered.name)
        before = producers(publisher, in_turn)

        first = publisher.publish(messages(loose, 10))
        assert set(map(type, first)) == {Unknown}
        assert "out of order sequence number" in first[0].reason
        assert not any(outcome.destination_healthy for outcome in first if isinstance(outcome, Unknown)), "uncharged"
        assert set(map(type, publisher.publish(messages(loose, 10)))) == {Confirmed}

        sent = messages(ordered, 300, keys=3)
        resend(in_turn.publish_in_order, sent)
        after = producers(publisher, in_turn)
        assert before[0] is not after[0]
        assert before[1] is not after[1]
    ids = {one.event_id for one in sent}
    arrived = [one for one in records(lone_kafka, ordered.name) if one.headers["id"] in ids]
    assert in_order(sent, arrived)
    assert len(arrived) == 300, "nothing twice"


def lose_the_tail(broker: KafkaBroker, *topics: str) -> None:
    """As after a power cut under a disk that lied about what it had written."""
    broker.proxy.refuse()
    broker.kill()
    for topic in topics:
        os.truncate(broker.log_of(topic), broker.log_of(topic).stat().st_size // 2)
    broker.start()
    for topic in topics:
        broker.wait_until_led(topic, 1)
    broker.proxy.heal()


def producers(loose: KafkaPublisher, in_turn: KafkaPublisher) -> tuple[object, object]:
    return loose._client.producer("batch"), in_turn._client.producer("ordered")


def records(broker: KafkaBroker, topic: str) -> list[Arrived]:
    """All in the topic's only partition."""
    with closing(Consumer({"bootstrap.servers": broker.direct, "group.id": "reader", "log_level": 0})) as consumer:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Arrived] = []
        deadline = time.monotonic() + 20
        while len(found) < end and time.monotonic() < deadline:
            for one in consumer.consume(1_000, timeout=0.2):
                headers = {name: value.decode() for name, value in one.headers()}
                found.append(Arrived(headers, one.value(), one.key().decode()))
        return found
