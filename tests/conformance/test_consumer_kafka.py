"""The consumer's contract with a real Kafka cluster and MySQL."""

import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer as Client
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy import Engine

from pillarbox.event.message import Message
from pillarbox.ports import Confirmed
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.consumer import ConsumerCapabilities, DeadCopy, DeliveryConformance
from tests.conformance.shared_database import shared_database
from tests.servers import bootstrap_of
from tests.services_fixtures import MakeTopic


class Kafka:
    capabilities = ConsumerCapabilities("kafka")

    def __init__(self, url: str, admin: AdminClient, make_topic: MakeTopic) -> None:
        self.broker = url
        self.admin = admin
        self.make_topic = make_topic
        self.sources: list[str] = []

    def new_source(self) -> str:
        self.sources.append(self.make_topic(3))
        return self.sources[-1]

    def send(self, messages: Sequence[Message]) -> None:
        publisher = open_publisher(self.broker)
        assert all(isinstance(outcome, Confirmed) for outcome in publisher.publish(messages))
        publisher.close()

    def send_foreign(self, source: str, body: bytes) -> None:
        producer = Producer({"bootstrap.servers": bootstrap_of(self.broker)})
        producer.produce(source, body)
        assert producer.flush(20) == 0

    def dead_letters(self, name: str, at_least: int) -> list[DeadCopy]:
        client = self._client("nobody")
        client.assign([TopicPartition(name, 0, 0)])
        found: list[DeadCopy] = []
        until = time.monotonic() + 20
        while time.monotonic() < until:
            for message in client.consume(100, timeout=0.2):
                if message.error() is None:
                    headers = {key: value.decode() for key, value in message.headers() or ()}
                    key = message.key()
                    found.append(DeadCopy(key and key.decode(), headers, message.value()))
            if len(found) >= max(at_least, client.get_watermark_offsets(TopicPartition(name, 0), timeout=10)[1]):
                break
        client.close()
        return found

    def unacknowledged(self, source: str, consumer: str) -> int:
        client = self._client(consumer)
        left = 0
        for committed in client.committed([TopicPartition(source, number) for number in range(3)], timeout=10):
            end = client.get_watermark_offsets(committed, timeout=10)[1]
            left += end - max(0, committed.offset)
        client.close()
        return left

    def clean_up(self) -> None:
        own = [
            name
            for name in self.admin.list_topics(timeout=10).topics
            if name.endswith((".dead", ".retry")) and any(name.startswith(f"{source}.") for source in self.sources)
        ]
        if own:
            for deleted in self.admin.delete_topics(own, operation_timeout=20).values():
                deleted.result(30)

    def _client(self, group: str) -> Client:
        return Client({"bootstrap.servers": bootstrap_of(self.broker), "group.id": group, "log_level": 0})


@pytest.fixture
def under_test(kafka_url: str, kafka_admin: AdminClient, make_topic: MakeTopic) -> Iterator[Kafka]:
    under_test = Kafka(kafka_url, kafka_admin, make_topic)
    yield under_test
    under_test.clean_up()


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "mysql", tmp_path_factory) as engine:
        yield engine


class TestKafka(DeliveryConformance):
    """Every test on a topic of its own."""
