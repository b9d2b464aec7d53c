"""Dead letters in a RabbitMQ queue. They are looked at without an acknowledgement, so that they stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pika
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker, NackError, UnroutableError

from ...errors import BrokerUnavailable, SourceMissing
from ...event.message import KEY
from ...publish.rabbitmq.refusals import NOT_FOUND, explain, reason_of
from ...publish.rabbitmq.url import RabbitUrl, parse_rabbitmq_url
from .. import dead
from ..dead import dead_name
from ..rabbitmq.delivery import copy_properties, text_headers
from ..retries import retry_name
from .copies import headers_again
from .letters import Letter, Order


class _Handle(NamedTuple):
    tag: int
    properties: BasicProperties
    body: bytes


class RabbitBox:
    """The queue ``<source>.<consumer>.dead``. A letter leaves it by the acknowledgement that follows its copy.

    While it is open, what it has looked at is not to be seen by others; then it is back in its old place (marked as
    redelivered; a quorum queue also counts it as a delivery).
    """

    def __init__(self, url: RabbitUrl, consumer: str, source: str) -> None:
        self._url = url
        self._consumer = consumer
        self._dead = dead_name(source, consumer)
        self._retry = retry_name(source, consumer)
        self._connection: pika.BlockingConnection | None = None
        self._looking: BlockingChannel | None = None
        self._sending: BlockingChannel | None = None

    @classmethod
    def from_url(cls, url: str, consumer: str, source: str, *, deadline: float = 10.0) -> RabbitBox:
        """Make one from ``amqp://`` or ``amqps://``."""
        parsed = parse_rabbitmq_url(url, connect_timeout=deadline)
        for node in parsed.nodes:
            node.blocked_connection_timeout = deadline
            node.client_properties = {"connection_name": f"pillarbox dead-letters {consumer}", "product": "Pillarbox"}
        return cls(parsed, consumer, source)

    def open(self) -> None:
        """Connect. SourceMissing (PB-042) when one of the consumer's two queues is not there."""
        try:
            self._connection = pika.BlockingConnection(list(self._url.nodes))
            self._looking, self._sending = self._connection.channel(), self._connection.channel()
            self._sending.confirm_delivery()
            self._there(self._dead)
            self._there(self._retry)
        except (AMQPError, OSError) as error:
            raise explain(error, self._url.shown) from error

    def letters(self) -> Iterator[Letter]:
        """Those that are in the queue now, from its head."""
        try:
            waiting = self._open(self._looking).queue_declare(self._dead, passive=True).method.message_count
            for number in range(waiting):
                method, properties, body = self._open(self._looking).basic_get(self._dead)
                if method is None:
                    return
                handle = _Handle(method.delivery_tag, properties, body)
                headers = text_headers(properties.headers)
                yield Letter(str(number), headers.get(KEY), headers, len(body), handle)
        except (AMQPError, OSError) as error:
            raise self._away(error) from error

    def send(self, letter: Letter, order: Order) -> None:
        """Publish a copy to the consumer's retry queue and wait for the confirm."""
        _, properties, body = _handle(letter)
        kept = {name: value for name, value in (properties.headers or {}).items() if name not in dead.ADDED}
        properties.headers = kept
        again = copy_properties(properties, headers_again(letter, order))
        try:
            self._open(self._sending).basic_publish("", self._retry, body, again, mandatory=True)
        except (UnroutableError, NackError) as error:
            raise BrokerUnavailable(f"The queue {self._retry!r} did not take it: {error}.") from error
        except (AMQPError, OSError) as error:
            raise self._away(error) from error

    def remove(self, letter: Letter, order: Order) -> None:
        """Acknowledge it. Who wanted it, and why, is in the log and in the copy's ``retryReason``."""
        try:
            self._open(self._looking).basic_ack(_handle(letter).tag)
        except (AMQPError, OSError) as error:
            raise self._away(error) from error

    def close(self) -> None:
        """Close the connection: the broker puts back what was looked at."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            try:
                connection.close()
            except (AMQPError, OSError):
                return  # it is closed all the same, and the letters are back

    def _there(self, queue: str) -> None:
        try:
            self._open(self._looking).queue_declare(queue, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code != NOT_FOUND:
                raise
            raise SourceMissing(
                f"RabbitMQ at {self._url.shown} has no queue {queue!r}.",
                fix="Check the names of consumer and source; the consumer makes the queue when it starts.",
            ) from error

    def _away(self, error: Exception) -> BrokerUnavailable:
        return BrokerUnavailable(f"RabbitMQ at {self._url.shown}: {reason_of(error)}.")

    def _open(self, channel: Any) -> BlockingChannel:
        if not isinstance(channel, BlockingChannel):
            raise BrokerUnavailable("The dead letters are closed.")
        return channel


def _handle(letter: Letter) -> _Handle:
    assert isinstance(letter.handle, _Handle)
    return letter.handle
