"""The consumer's contract with the embedded log and SQLite."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from pillarbox.consume.engine import consumer_engine
from pillarbox.embedded import EmbeddedLog, NewRecord
from pillarbox.event.message import Message
from pillarbox.publish.registry import open_publisher
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer import ConsumerCapabilities, ConsumerConformance, DeadCopy
from pillarbox.testing.conformance.consumer_world import ConsumerWorld


class Embedded:
    capabilities = ConsumerCapabilities("embedded", missing_sources=False)

    def __init__(self, path: Path) -> None:
        self.broker = f"embedded://{path}"
        self.log = EmbeddedLog(path)

    def new_source(self) -> str:
        name = f"source-{uuid4().hex[:8]}"
        self.log.create_topic(name)
        return name

    def send(self, messages: Sequence[Message]) -> None:
        publisher = open_publisher(self.broker)
        publisher.publish(messages)
        publisher.close()

    def send_foreign(self, source: str, body: bytes) -> None:
        self.log.append([NewRecord(source, None, [], body)])

    def dead_letters(self, name: str, at_least: int) -> list[DeadCopy]:
        return [DeadCopy(record.key, record.headers, record.body) for record in self.log.records(name)]

    def unacknowledged(self, source: str, consumer: str) -> int:
        return self.log.lag(consumer).get(source, 0)


class TestEmbedded(ConsumerConformance):
    @pytest.fixture
    def under_test(self, tmp_path: Path) -> Iterator[Embedded]:
        under_test = Embedded(tmp_path / "events.log")
        yield under_test
        under_test.log.close()

    @pytest.fixture
    def database(self, sqlite_url: str) -> Iterator[Engine]:
        engine = consumer_engine(sqlite_url)
        install(engine, ["inbox"])
        yield engine
        engine.dispose()

    def test_a_source_that_does_not_exist_is_named_at_the_start(
        self, world: ConsumerWorld, under_test: Embedded
    ) -> None:
        """The embedded log creates it instead."""
        consumer = world.consumer_of_things(sources=["not-there-yet"])
        with consumer.start() as running:
            world.send(world.message(destination="not-there-yet"))
            running.wait_until(lambda: consumer.stats.applied == 1)
