"""The consumer's contract with the broker in memory, on every database."""

from collections.abc import Iterator, Sequence
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.memory import MemoryBroker
from pillarbox.event.message import Message
from pillarbox.store.schema import inbox_metadata
from pillarbox.testing.conformance.consumer import ConsumerConformance
from pillarbox.testing.conformance.consumer_world import ConsumerCapabilities, DeadCopy


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


class TestMemory(ConsumerConformance):
    @pytest.fixture
    def under_test(self) -> InMemory:
        return InMemory()

    @pytest.fixture
    def database(self, database_url: str) -> Iterator[Engine]:
        engine = consumer_engine(database_url)
        inbox_metadata.create_all(engine)
        yield engine
        engine.dispose()
