"""Reading from RabbitMQ with pika."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pika

from ..desk import Desk, Letter


class RabbitReader:
    """One connection that gets from one queue; in automatic mode the broker counts what it hands out as done."""

    def __init__(self, url: str, queue: str, *, automatic: bool) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._queue = queue
        self._automatic = automatic

    def poll(self, timeout: float, limit: int) -> list[Letter]:
        """What is ready, up to ``limit``; waits ``timeout`` seconds when there is nothing."""
        found: list[Letter] = []
        while len(found) < limit:
            method, properties, _ = self._channel.basic_get(self._queue, auto_ack=self._automatic)
            if method is None or properties is None:
                break
            found.append(Letter(str(properties.message_id), method.delivery_tag))
        if not found:
            end = time.monotonic() + timeout
            self._connection.process_data_events(max(0.0, end - time.monotonic()))
        return found

    def acknowledge(self, letters: Sequence[Letter]) -> None:
        """All up to the last of them."""
        self._channel.basic_ack(max(letter.handle for letter in letters), multiple=True)
        self._connection.process_data_events(0)

    def at_end(self) -> bool:
        """True when the queue has nothing ready."""
        return self._channel.queue_declare(self._queue, passive=True).method.message_count == 0

    def close(self) -> None:
        """Close the connection: what was not acknowledged goes back to the queue."""
        self._connection.close()


def open_reader(desk: Desk, *, automatic: bool) -> RabbitReader:
    """Connect."""
    return RabbitReader(desk.broker, desk.source, automatic=automatic)
