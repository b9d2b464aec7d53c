"""The consumer's contract: deliveries with the broker in memory, transactions on every database."""

from collections.abc import Iterator, Sequence
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.memory import MemoryBroker
from pillarbox.event.message import Message
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer import (
    ConsumerCapabilities,
    DeadCopy,
    DeliveryConformance,
    TransactionConformance,
)
from tests.conformance.shared_database import shared_database
from tests.servers import DATABASES


class InMemory:
    capabilities = ConsumerCapabilities("memory")

    def __init__(self) -> None:
        self.broker = MemoryBroker()

    def new_source(self) -> str:
        name = f"source-{uuid4().hex[:8]}"
        self.broker.declare(name)
        return name

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.broker.send(message)

    def send_foreign(self, source: str, body: bytes) -> None:
        self.broker.publish(source, body, {})

    def dead_letters(self, name: str, at_least: int) -> list[DeadCopy]:
        return [DeadCopy(*record) for record in self.broker.records(name)]

    def unacknowledged(self, source: str, consumer: str) -> int:
        return self.broker.unacknowledged(source, consumer)


@pytest.fixture
def under_test() -> InMemory:
    return InMemory()


class TestMemory(DeliveryConformance):
    @pytest.fixture
    def database(self, sqlite_url: str) -> Iterator[Engine]:
        engine = consumer_engine(sqlite_url)
        install(engine, ["inbox"])
        yield engine
        engine.dispose()


class TestDatabases(TransactionConformance):
    @pytest.fixture(scope="class", params=["sqlite", *DATABASES])
    @classmethod
    def database_name(cls, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(scope="class")
    @classmethod
    def database(
        cls, request: pytest.FixtureRequest, database_name: str, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Engine]:
        with shared_database(request, database_name, tmp_path_factory) as engine:
            yield engine
