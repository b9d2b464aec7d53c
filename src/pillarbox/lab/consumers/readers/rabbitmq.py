"""Reading from RabbitMQ with pika."""

from __future__ import annotations

from collections.abc import Sequence

import pika

from ....publish.rabbitmq.url import parse_rabbitmq_url
from ..desk import Desk, Letter


class RabbitReader:
    """One subscription to one queue; in automatic mode the broker counts what it hands out as done."""

    def __init__(self, url: str, queue: str, prefetch: int, *, automatic: bool) -> None:
        self._connection = pika.BlockingConnection(list(parse_rabbitmq_url(url, connect_timeout=5.0).nodes))
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=prefetch)
        self._queue = queue
        self._automatic = automatic

    def poll(self, timeout: float, limit: int) -> list[Letter]:
        """What has arrived, up to ``limit``; waits ``timeout`` seconds for the first one, and hardly for the others."""
        found: list[Letter] = []
        while len(found) < limit:
            wait = 0.05 if found else timeout
            method, properties, _ = next(
                self._channel.consume(self._queue, auto_ack=self._automatic, inactivity_timeout=wait)
            )
            if method is None or properties is None:
                break
            found.append(Letter(str(properties.message_id), method.delivery_tag))
        return found

    def acknowledge(self, letters: Sequence[Letter]) -> None:
        """All up to the last of them."""
        self._channel.basic_ack(max(letter.handle for letter in letters), multiple=True)
        self._connection.process_data_events(0)

    def close(self) -> None:
        """Close the connection: what was not acknowledged goes back to the queue."""
        self._connection.close()


def open_reader(desk: Desk, *, automatic: bool) -> RabbitReader:
    """Connect; the subscription begins with the first poll."""
    return RabbitReader(desk.broker, desk.source, desk.limit, automatic=automatic)
