"""The consumer's contract with a real RabbitMQ and PostgreSQL."""

import time
from collections.abc import Iterator, Sequence
from uuid import uuid4

import pika
import pytest
from sqlalchemy import Engine

from pillarbox.consume.engine import consumer_engine
from pillarbox.event.message import Message
from pillarbox.ports import Confirmed
from pillarbox.publish.registry import open_publisher
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer import ConsumerConformance
from pillarbox.testing.conformance.consumer_world import ConsumerCapabilities, DeadCopy


class Rabbit:
    capabilities = ConsumerCapabilities("amqp", broadcast=False)

    def __init__(self, url: str) -> None:
        self.broker = url
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()

    def new_source(self) -> str:
        name = f"source-{uuid4().hex[:8]}"
        self.channel.exchange_declare(name, "fanout")
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


class TestRabbitMQ(ConsumerConformance):
    @pytest.fixture
    def database(self, postgres_url: str) -> Iterator[Engine]:
        engine = consumer_engine(postgres_url)
        install(engine, ["inbox"])
        yield engine
        engine.dispose()
