"""The contract of a source alone, without consumer and database: memory, the embedded log, Kafka, RabbitMQ and NATS."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from pillarbox.testing.conformance.consumer_deadletters import DeadLetterConformance
from pillarbox.testing.conformance.consumer_positions import PositionConformance
from pillarbox.testing.conformance.consumer_retry import RetryConformance
from tests.conformance.test_consumer_embedded import Embedded
from tests.conformance.test_consumer_in_memory import InMemory
from tests.conformance.test_consumer_kafka import Kafka
from tests.conformance.test_consumer_nats import NatsBroker
from tests.conformance.test_consumer_rabbitmq import Rabbit
from tests.services_fixtures import MakeTopic


class TestMemory(PositionConformance, RetryConformance, DeadLetterConformance):
    @pytest.fixture
    def under_test(self) -> InMemory:
        return InMemory()


class TestEmbedded(PositionConformance, RetryConformance, DeadLetterConformance):
    @pytest.fixture
    def under_test(self, tmp_path: Path) -> Iterator[Embedded]:
        under_test = Embedded(tmp_path / "events.log")
        yield under_test
        under_test.log.close()


class TestKafka(PositionConformance, RetryConformance, DeadLetterConformance):
    @pytest.fixture
    def under_test(self, kafka_url: str, kafka_admin: AdminClient, make_topic: MakeTopic) -> Iterator[Kafka]:
        under_test = Kafka(kafka_url, kafka_admin, make_topic)
        yield under_test
        under_test.clean_up()


class TestRabbitMQ(PositionConformance, RetryConformance, DeadLetterConformance):
    @pytest.fixture
    def under_test(self, rabbitmq_url: str) -> Iterator[Rabbit]:
        under_test = Rabbit(rabbitmq_url)
        yield under_test
        under_test.connection.close()


class TestNats(NatsBroker, PositionConformance, RetryConformance, DeadLetterConformance): ...
