"""The consumer's contract with many events in one transaction: every broker, every database."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from pillarbox.testing.conformance.consumer_batches import BatchConformance, BatchTransactionConformance
from tests.conformance.shared_database import shared_database
from tests.conformance.test_consumer_nats import NatsBroker
from tests.conformance.test_consumer_parallel import EmbeddedBroker, InMemoryBroker, KafkaBroker, RabbitBroker
from tests.servers import DATABASES

QUICK = {"postgres", "mysql"}
CHOSEN = ["sqlite", *(pytest.param(one, marks=() if one in QUICK else pytest.mark.long) for one in DATABASES)]


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


class TestBatchesInMemory(InMemoryBroker, BatchConformance): ...


class TestBatchesEmbedded(EmbeddedBroker, BatchConformance): ...


class TestBatchesKafka(KafkaBroker, BatchConformance): ...


class TestBatchesRabbitMQ(RabbitBroker, BatchConformance): ...


class TestBatchesNats(NatsBroker, BatchConformance): ...


class TestBatchesOnDatabases(InMemoryBroker, BatchTransactionConformance):
    @pytest.fixture(scope="class", params=CHOSEN)
    @classmethod
    def database(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
        with shared_database(request, request.param, tmp_path_factory) as engine:
            yield engine
