"""The consumer's contract with a real RabbitMQ and PostgreSQL."""

import time
from collections.abc import Iterator, Sequence
from uuid import uuid4

import pika
import pytest
from sqlalchemy import Engine

from pillarbox.event.message import Message
from pillarbox.ports import Confirmed
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.consumer import ConsumerCapabilities, DeadCopy, DeliveryConformance
from pillarbox.testing.conformance.consumer_world import ConsumerWorld
from tests.conformance.shared_database import shared_database


class Rabbit:
    capabilities = ConsumerCapabilities("amqp", broadcast=False)

    def __init__(self, url: str) -> None:
        self.broker = url
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()

    def new_source(self) -> str:
        name = f"source-{uuid4().hex[:8]}"
        self.channel.exchange_declare(name, "fanout", durable=True)
        self.channel.queue_declare(name, durable=True)
        self.channel.queue_bind(name, name)
        return name

    def send(self, messages: Sequence[Message]) -> None:
        publisher = open_publisher(self.broker)
        assert all(isinstance(outcome, Confirmed) for outcome in publisher.publish(messages))
        publisher.close()

    def send_foreign(self, source: str, body: bytes) -> None:
        self.channel.basic_publish("", source, body)

    def dead_letters(self, name: str, at_least: int) -> list[DeadCopy]:
        found: list[DeadCopy] = []
        until = time.monotonic() + 10
        while time.monotonic() < until:
            method, properties, body = self.channel.basic_get(name, auto_ack=True)
            if method is not None:
                found.append(DeadCopy(properties.headers.get("key"), properties.headers, body))
            elif len(found) >= at_least:
                break
        return found

    def unacknowledged(self, source: str, consumer: str) -> int:
        # Of a consumer that is gone, everything that it did not acknowledge is ready again.
        return int(self.channel.queue_declare(source, passive=True).method.message_count)


@pytest.fixture
def under_test(rabbitmq_url: str) -> Iterator[Rabbit]:
    under_test = Rabbit(rabbitmq_url)
    yield under_test
    under_test.connection.close()


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_database(request, "postgres", tmp_path_factory) as engine:
        yield engine


class TestRabbitMQ(DeliveryConformance):
    def test_each_consumer_name_applies_every_event(self, world: ConsumerWorld, under_test: Rabbit) -> None:
        """On RabbitMQ each consumer has a queue of its own, bound to the same exchange."""
        first, second = world.consumer_of_things(), world.consumer_of_things(sources=[f"{world.source}-2"])
        under_test.channel.queue_declare(f"{world.source}-2", durable=True)
        under_test.channel.queue_bind(f"{world.source}-2", world.source)
        message = world.message()
        world.send(message)
        with first.start(), second.start() as running:
            running.wait_until(lambda: first.stats.applied == second.stats.applied == 1, 30)
        assert world.effects() == [message.event_id] * 2
