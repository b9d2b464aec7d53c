"""The publisher's contract on Kafka: three brokers, three replicas, two in sync at least."""

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pillarbox.event.destination import Destination, Topic
from pillarbox.ports import Confirmed, Publisher, Rejected
from pillarbox.publish.registry import make_publisher
from pillarbox.testing.conformance.publisher import PublisherConformance
from pillarbox.testing.conformance.publisher_order import PublisherOrderConformance
from pillarbox.testing.conformance.publisher_world import Arrived, messages
from tests.servers import bootstrap_of, unique


class Kafka:
    too_large = 1_200_000

    def __init__(self, url: str, admin: AdminClient, make_topic: Callable[..., str]) -> None:
        self.url = url
        self.admin = admin
        self.make_topic = make_topic
        self.made: list[str] = []

    def publisher(self) -> Publisher:
        return make_publisher(self.url, deadline=15)

    def new_destination(self) -> Destination:
        return Topic(self.make_topic(3, max_message_bytes="1000000"))

    def missing_destination(self) -> Destination:
        return Topic(unique("missing"))

    def create(self, destination: Destination) -> None:
        self.made.append(destination.name)
        self.admin.create_topics([NewTopic(destination.name, 1, 3)], operation_timeout=20)[destination.name].result(30)

    def arrived(self, destination: Destination, at_least: int) -> list[Arrived]:
        consumer = Consumer({"bootstrap.servers": bootstrap_of(self.url), "group.id": "reader", "log_level": 0})
        topic = destination.name
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in partitions]
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Arrived] = []
        deadline = time.monotonic() + 10
        while len(found) < sum(ends) and time.monotonic() < deadline:
            for one in consumer.consume(min(500, sum(ends) - len(found)), timeout=0.2):
                assert one.error() is None
                headers = {name: value.decode() for name, value in one.headers()}
                key = one.key()
                found.append(Arrived(headers, one.value(), key and key.decode(), one.partition(), one.offset()))
        consumer.close()
        return found


class TestKafka(PublisherConformance):
    @pytest.fixture
    def under_test(self, kafka_url: str, kafka_admin: AdminClient, make_topic: Callable[..., str]) -> Kafka:
        return Kafka(kafka_url, kafka_admin, make_topic)

    def test_C060_small_messages_that_are_too_large_only_together_are_all_confirmed(
        self, kafka_url: str, make_topic: Callable[..., str]
    ) -> None:
        """C060: the broker refuses a whole record batch; each message is judged by its own size."""
        there = Topic(make_topic(1, max_message_bytes="5000"))
        sent = messages(there, 100)
        sent[50] = sent[50]._replace(payload=b"x" * 6_000)
        with closing(make_publisher(kafka_url, deadline=15)) as publisher:
            outcomes = publisher.publish(sent)
        assert isinstance(outcomes[50], Rejected)
        assert outcomes[50].permanent
        assert all(isinstance(outcome, Confirmed) for at, outcome in enumerate(outcomes) if at != 50)


class TestKafkaOrder(PublisherOrderConformance):
    @pytest.fixture
    def under_test(self, kafka_url: str, kafka_admin: AdminClient, make_topic: Callable[..., str]) -> Kafka:
        return Kafka(kafka_url, kafka_admin, make_topic)
