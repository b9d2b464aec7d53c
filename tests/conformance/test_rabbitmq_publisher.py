"""The publisher's contract on RabbitMQ, with quorum queues."""

import time

import pika
import pytest

from pillarbox.event.destination import Destination, Exchange
from pillarbox.ports import Publisher
from pillarbox.publish.registry import make_publisher
from pillarbox.testing.conformance.publisher import PublisherConformance
from pillarbox.testing.conformance.publisher_order import PublisherOrderConformance
from pillarbox.testing.conformance.publisher_world import Arrived
from tests.servers import unique


class RabbitMQ:
    too_large = 128 * 1024 * 1024 + 1  # max_message_size of RabbitMQ 3.10

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()

    def publisher(self) -> Publisher:
        return make_publisher(self.url, deadline=20)  # 128 MiB take a busy machine more than ten seconds

    def new_destination(self) -> Destination:
        destination = Exchange(unique("exchange"), "things")
        self.create(destination)
        return destination

    def missing_destination(self) -> Destination:
        return Exchange(unique("missing"), "things")

    def create(self, destination: Destination) -> None:
        """An exchange and a queue of the same name."""
        self.channel.exchange_declare(destination.name, "direct", durable=True)
        self.channel.queue_declare(destination.name, durable=True, arguments={"x-queue-type": "quorum"})
        self.channel.queue_bind(destination.name, destination.name, destination.routing_key)

    def arrived(self, destination: Destination, at_least: int) -> list[Arrived]:
        channel = self.connection.channel()
        found: list[Arrived] = []
        deadline = time.monotonic() + 10
        for method, properties, body in channel.consume(destination.name, auto_ack=True, inactivity_timeout=0.1):
            if method is not None:
                headers = dict(properties.headers)
                found.append(Arrived(headers, body, headers.pop("key", None)))
            elif len(found) >= at_least or time.monotonic() > deadline:
                break
        channel.close()
        return found


class TestRabbitMQ(PublisherConformance):
    @pytest.fixture
    def under_test(self, rabbitmq_url: str) -> RabbitMQ:
        return RabbitMQ(rabbitmq_url)


class TestRabbitMQOrder(PublisherOrderConformance):
    @pytest.fixture
    def under_test(self, rabbitmq_url: str) -> RabbitMQ:
        return RabbitMQ(rabbitmq_url)
