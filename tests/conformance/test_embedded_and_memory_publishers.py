"""The publisher's contract, with the embedded log and in memory."""

from pathlib import Path

import pytest

from pillarbox.embedded import EmbeddedLog
from pillarbox.event.destination import Destination, Topic
from pillarbox.event.message import Message, to_headers
from pillarbox.ports import Outcome, Rejected
from pillarbox.publish.embedded import EmbeddedPublisher
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.testing.conformance.publisher import PublisherConformance
from pillarbox.testing.conformance.publisher_order import PublisherOrderConformance
from pillarbox.testing.conformance.publisher_world import Arrived
from tests.servers import unique


class Embedded:
    too_large = 1_000_001

    def __init__(self, path: Path) -> None:
        self.log = EmbeddedLog(path)

    def publisher(self) -> EmbeddedPublisher:
        return EmbeddedPublisher(EmbeddedLog(self.log.path), max_record_bytes=1_000_000)

    def new_destination(self) -> Destination:
        return Topic(unique("topic"))

    def missing_destination(self) -> None:
        return None  # topics are created when they are first published to

    def create(self, destination: Destination) -> None:
        raise AssertionError("there is no missing topic")

    def arrived(self, destination: Destination, at_least: int) -> list[Arrived]:
        return [
            Arrived(one.headers, one.body, one.key, one.partition, one.offset)
            for one in self.log.records(destination.name)
        ]


class InMemory:
    too_large = 1_000_001

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self.shared = MemoryPublisher(self.answer)

    def answer(self, message: Message) -> Outcome | None:
        if message.destination in self.missing:
            return Rejected(f"no topic {message.destination!r}", permanent=False, of_destination=True)
        if len(message.payload) >= self.too_large:
            return Rejected("too large", permanent=True)
        return None

    def publisher(self) -> MemoryPublisher:
        return self.shared

    def new_destination(self) -> Destination:
        return Topic(unique("topic"))

    def missing_destination(self) -> Destination:
        name = unique("missing")
        self.missing.add(name)
        return Topic(name)

    def create(self, destination: Destination) -> None:
        self.missing.remove(destination.name)

    def arrived(self, destination: Destination, at_least: int) -> list[Arrived]:
        here = [one for one in self.shared.arrived if one.destination == destination.name]
        return [Arrived(dict(to_headers(one)), one.payload, one.key, 0, offset) for offset, one in enumerate(here)]


class TestEmbedded(PublisherConformance):
    @pytest.fixture
    def under_test(self, tmp_path: Path) -> Embedded:
        return Embedded(tmp_path / "events.log")


class TestMemory(PublisherConformance):
    @pytest.fixture
    def under_test(self) -> InMemory:
        return InMemory()


class TestEmbeddedOrder(PublisherOrderConformance):
    @pytest.fixture
    def under_test(self, tmp_path: Path) -> Embedded:
        return Embedded(tmp_path / "events.log")


class TestMemoryOrder(PublisherOrderConformance):
    @pytest.fixture
    def under_test(self) -> InMemory:
        return InMemory()
