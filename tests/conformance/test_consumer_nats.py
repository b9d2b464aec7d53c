"""The consumer's contract with a real NATS server and PostgreSQL."""

import time
from collections.abc import Iterator, Sequence

import pytest
from sqlalchemy import Engine

from pillarbox.consume.nats.names import DEAD_STREAM, dead_subject, durable_of
from pillarbox.event.message import KEY, Message
from pillarbox.ports import Confirmed
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.consumer import ConsumerCapabilities, DeadCopy, DeliveryConformance
from pillarbox.testing.conformance.publisher_world import Arrived
from tests.conformance.shared_database import shared_database
from tests.nats_server import Streams


class Nats:
    capabilities = ConsumerCapabilities("nats")

    def __init__(self, url: str) -> None:
        self.broker = url
        self.streams = Streams(url)

    def new_source(self) -> str:
        return self.streams.make()

    def send(self, messages: Sequence[Message]) -> None:
        # The suite sends an event twice, which the server would drop.
        publisher = open_publisher(f"{self.broker}?deduplicate=no")
        assert all(isinstance(outcome, Confirmed) for outcome in publisher.publish(messages))
        publisher.close()

    def send_foreign(self, source: str, body: bytes) -> None:
        self.streams.publish(source, body)

    def dead_letters(self, name: str, at_least: int) -> list[DeadCopy]:
        source, consumer = name.removesuffix(".dead").rsplit(".", 1)
        until = time.monotonic() + 10
        while True:
            found = self.streams.messages(DEAD_STREAM, dead_subject(source, consumer))
            if len(found) >= at_least or time.monotonic() > until:
                return [DeadCopy(one.key, _with_key(one), one.body) for one in found]

    def unacknowledged(self, source: str, consumer: str) -> int:
        info = self.streams.api(f"CONSUMER.INFO.{source}.{durable_of(consumer, source)}")
        return int(info["num_pending"] + info["num_ack_pending"])


def _with_key(one: Arrived) -> dict[str, str]:
    """NATS has no place for a key but the headers."""
    return one.headers if one.key is None else {**one.headers, KEY: one.key}


class NatsBroker:
    @pytest.fixture
    def under_test(self, nats_url: str) -> Iterator[Nats]:
        under_test = Nats(nats_url)
        yield under_test
        under_test.streams.close()


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


class TestNats(NatsBroker, DeliveryConformance):
    """Every test on a stream of its own."""
