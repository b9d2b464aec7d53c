"""The publisher's contract on NATS JetStream."""

import time
from collections.abc import Iterator

import pytest

from pillarbox.event.destination import Destination, Topic
from pillarbox.ports import Publisher
from pillarbox.publish.registry import make_publisher
from pillarbox.testing.conformance.publisher import PublisherConformance
from pillarbox.testing.conformance.publisher_order import PublisherOrderConformance
from pillarbox.testing.conformance.publisher_world import Arrived
from tests.nats_server import Streams
from tests.servers import unique


class Nats:
    too_large = 1024 * 1024 + 1  # max_payload of the server as it comes

    def __init__(self, url: str) -> None:
        self.url = url
        self.streams = Streams(url)

    def publisher(self) -> Publisher:
        return make_publisher(self.url, deadline=10)

    def new_destination(self) -> Destination:
        return Topic(self.streams.make())

    def missing_destination(self) -> Destination:
        return Topic(unique("missing"))

    def create(self, destination: Destination) -> None:
        self.streams.make(name=destination.name)

    def arrived(self, destination: Destination, at_least: int) -> list[Arrived]:
        deadline = time.monotonic() + 10
        while self.streams.count(destination.name) < at_least and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.streams.messages(destination.name)


class NatsBroker:
    @pytest.fixture
    def under_test(self, nats_url: str) -> Iterator[Nats]:
        under_test = Nats(nats_url)
        yield under_test
        under_test.streams.close()


class TestNats(NatsBroker, PublisherConformance): ...


class TestNatsOrder(NatsBroker, PublisherOrderConformance): ...
