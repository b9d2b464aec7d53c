"""A virtual host of the shared RabbitMQ node, behind a fault proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pika
from sqlalchemy import make_url

from pillarbox.event.destination import Exchange
from pillarbox.lab.proxy import FaultProxy, fault_proxy
from pillarbox.ports import Publisher
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import Arrived

QUEUE = Exchange("", "events")


class RabbitBroker:
    """This test's virtual host, with the queue ``events``. ``url`` goes through ``proxy``, ``direct`` past it."""

    def __init__(self, url: str, proxy: FaultProxy) -> None:
        self.direct = url
        self.proxy = proxy
        self.url = make_url(url).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.queue_declare("events", durable=True)

    def publisher(self, deadline: float = 5) -> Publisher:
        return open_publisher(self.url, deadline=deadline)

    def bodies(self, queue: str = "events") -> list[bytes]:
        return [one.body for one in self.arrived(queue)]

    def arrived(self, queue: str = "events") -> list[Arrived]:
        """All that is in the queue, taken out of it."""
        found = []
        while (got := self.channel.basic_get(queue, auto_ack=True))[0] is not None:
            headers = dict(got[1].headers)
            found.append(Arrived(headers, got[2], headers.pop("key", None)))
        return found


def queue_that_survives(url: str, name: str = "events") -> None:
    """Declare a durable queue that is still there when the node is killed in the next moment.

    In RabbitMQ 3 a queue is a transaction of Mnesia, which writes it at once and that it was decided up to two seconds
    later (a cast to mnesia_recover, behind RabbitMQ's own sync). Killed in between, the node takes the queue for never
    declared, although declare-ok and even confirms were given. The sync of the next declaration writes both.
    """
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        for one in (name, f"{name}-after", f"{name}-after-that"):
            channel.queue_declare(one, durable=True)


@contextmanager
def rabbit_broker(url: str) -> Iterator[RabbitBroker]:
    """A proxy in front of the virtual host of an AMQP URL."""
    place = make_url(url)
    with fault_proxy(place.host, place.port) as proxy:
        yield RabbitBroker(url, proxy)
