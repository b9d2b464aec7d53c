"""The consumer's contract about retries that wait at the broker: every broker."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from pillarbox.testing.conformance.consumer_retry_in_broker import RetryInBrokerConformance
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_nats import NatsBroker
from tests.conformance.test_consumer_parallel import EmbeddedBroker, InMemoryBroker, KafkaBroker, RabbitBroker


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


class TestRetryInMemory(InMemoryBroker, RetryInBrokerConformance): ...


class TestRetryInEmbedded(EmbeddedBroker, RetryInBrokerConformance): ...


class TestRetryInKafka(KafkaBroker, RetryInBrokerConformance): ...


class TestRetryInRabbitMQ(RabbitBroker, RetryInBrokerConformance): ...


class TestRetryInNats(NatsBroker, RetryInBrokerConformance): ...
