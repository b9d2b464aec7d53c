"""The consumer's contract with several handlers at once: every broker, and a database with writers side by side."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from sqlalchemy import Engine

from pillarbox.testing.conformance.consumer_parallel import ParallelConformance
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_embedded import Embedded
from tests.conformance.test_consumer_in_memory import InMemory
from tests.conformance.test_consumer_kafka import Kafka
from tests.conformance.test_consumer_nats import NatsBroker
from tests.conformance.test_consumer_rabbitmq import Rabbit
from tests.services_fixtures import MakeTopic


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


class InMemoryBroker:
    @pytest.fixture
    def under_test(self) -> InMemory:
        return InMemory()


class EmbeddedBroker:
    @pytest.fixture
    def under_test(self, tmp_path: Path) -> Iterator[Embedded]:
        under_test = Embedded(tmp_path / "events.log")
        yield under_test
        under_test.log.close()


class KafkaBroker:
    @pytest.fixture
    def under_test(self, kafka_url: str, kafka_admin: AdminClient, make_topic: MakeTopic) -> Iterator[Kafka]:
        under_test = Kafka(kafka_url, kafka_admin, make_topic)
        yield under_test
        under_test.clean_up()


class RabbitBroker:
    @pytest.fixture
    def under_test(self, rabbitmq_url: str) -> Iterator[Rabbit]:
        under_test = Rabbit(rabbitmq_url)
        yield under_test
        under_test.connection.close()


class TestParallelInMemory(InMemoryBroker, ParallelConformance): ...


class TestParallelEmbedded(EmbeddedBroker, ParallelConformance): ...


class TestParallelKafka(KafkaBroker, ParallelConformance): ...


class TestParallelRabbitMQ(RabbitBroker, ParallelConformance): ...


class TestParallelNats(NatsBroker, ParallelConformance): ...


class TestParallelMySQL(InMemoryBroker, ParallelConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def database(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
        with shared_database(request, "mysql", tmp_path_factory) as engine:
            yield engine
