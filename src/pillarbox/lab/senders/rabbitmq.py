"""Sending to RabbitMQ with pika: publisher confirms, mandatory, persistent."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from ...event.destination import Destination
from ...publish.rabbitmq.url import RabbitUrl, parse_rabbitmq_url
from ..points import reach


class RabbitSender:
    """One connection; after an error the next message gets a new one."""

    def __init__(self, url: RabbitUrl, destination: Destination) -> None:
        self._url = url
        self._destination = destination
        self._channel: BlockingChannel | None = self._open()

    def send(self, event_id: str, key: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Publish, and wait for the confirm. Raises pika's errors: unroutable, refused, connection lost."""
        channel = self._channel or self._open()
        self._channel = None  # until it is known that it is still good
        properties = pika.BasicProperties(
            content_type=headers["contentType"],
            delivery_mode=2,
            message_id=event_id,
            type=headers["eventType"],
            headers={**headers, "key": key},
        )
        exchange, routing_key = self._destination.name, self._destination.routing_key or headers["eventType"]
        channel.basic_publish(exchange, routing_key, body, properties, mandatory=True)
        self._channel = channel
        reach("sender.acknowledged")

    def begin(self) -> None:
        """AMQP's tx is not used: it spans one channel, and no database."""
        raise NotImplementedError("the lab uses no transactions of RabbitMQ")

    commit = abort = begin

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            with suppress(AMQPError):  # it is gone already
                self._channel.connection.close()

    def _open(self) -> BlockingChannel:
        channel = pika.BlockingConnection(list(self._url.nodes)).channel()
        channel.confirm_delivery()
        return channel


def open_sender(url: str, destination: Destination, transactional_id: str | None) -> RabbitSender:
    """Connect."""
    return RabbitSender(parse_rabbitmq_url(url, connect_timeout=5.0), destination)


def settings(*, transactional: bool) -> Mapping[str, Any]:
    """What the channel is asked for."""
    return {
        "client": f"pika {pika.__version__}",
        "acks": "publisher confirms, each awaited",
        "mandatory": True,
        "persistent": True,
        "idempotence": False,
        "retries": 0,
        "transactions": False,
    }
