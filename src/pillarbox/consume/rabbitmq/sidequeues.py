"""The connection that copies leave by: dead letters and retries. Runs on the event loop's thread.

Not the subscription's: a broker low on memory blocks connections that publish, and would then read no acknowledgements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pika import BasicProperties, spec
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ...errors import AccessRefused, BadConsumer, BrokerUnavailable
from ...publish.rabbitmq.refusals import reason_of
from ...publish.rabbitmq.url import RabbitUrl
from .channels import Channel, Connection, connect
from .delays import Queue, declared

_ACCESS_REFUSED = 403
_OTHER_ARGUMENTS = 406


class SideQueues:
    """Publishes one message at a time to a queue, mandatory and confirmed. Reconnects when it has to."""

    def __init__(self, url: RabbitUrl, consumer: str) -> None:
        self._url = url
        self._consumer = consumer
        self._declared: set[str] = set()
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._answer: asyncio.Future[str | None] | None = None

    async def declare(self, queues: Sequence[Queue]) -> None:
        """Make sure that the queues are there; existing ones stay as they are."""
        try:
            connection = await self._connected()
            for queue in queues:
                await self._declare(connection, queue)
        except (AMQPError, OSError) as error:
            await self.close()
            names = ", ".join(queue.name for queue in queues)
            raise BrokerUnavailable(f"The queues {names} cannot be declared: {reason_of(error)}.") from error

    async def put(self, queue: Queue, body: bytes, properties: BasicProperties, seconds: float) -> None:
        """Return when the broker has it; raises BrokerUnavailable when that is not certain within ``seconds``."""
        try:
            refused = await self._publish(queue, body, properties, seconds)
        except asyncio.CancelledError:
            await self.close()  # a confirm that is still to come would be taken for that of the next copy
            raise
        except (AMQPError, OSError) as error:
            await self.close()
            raise BrokerUnavailable(f"The copy for {queue.name!r} was not confirmed: {reason_of(error)}.") from error
        if refused is not None:
            await self.close()
            raise BrokerUnavailable(f"The queue {queue.name!r} did not take it: {refused}.")

    async def close(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection, self._channel = self._connection, None, None
        self._declared.clear()
        if connection is not None:
            await connection.close()

    async def _publish(self, queue: Queue, body: bytes, properties: BasicProperties, seconds: float) -> str | None:
        connection = await self._connected()
        if queue.name not in self._declared:
            await self._declare(connection, queue)
        channel = self._channel
        if channel is None or channel.closed.done():
            channel = await self._confirming_channel(connection)
        self._answer = asyncio.get_running_loop().create_future()
        channel.raw.basic_publish("", queue.name, body, properties, mandatory=True)
        refused: str | None = await channel.answer(self._answer, seconds)
        return refused

    async def _confirming_channel(self, connection: Connection) -> Channel:
        channel = await connection.channel()
        channel.raw.add_on_return_callback(self._on_return)
        await channel.ask(channel.raw.confirm_delivery, self._on_confirm)
        self._channel = channel
        return channel

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.lost.done():
            self._channel = None
            self._declared.clear()
            self._connection = await connect(self._url.nodes, f"pillarbox dead letters of {self._consumer}")
        return self._connection

    async def _declare(self, connection: Connection, queue: Queue) -> None:
        channel = await connection.channel()
        arguments = declared(queue.arguments, connection.version)
        try:
            await channel.ask(channel.raw.queue_declare, queue.name, durable=True, arguments=arguments)
        except ChannelClosedByBroker as error:
            if error.reply_code not in (_OTHER_ARGUMENTS, _ACCESS_REFUSED):
                raise
            # Somebody made it in their own way, or we may not: it will do if it is there.
            await self._check(connection, queue.name, error)
        else:
            channel.raw.close()
        self._declared.add(queue.name)

    async def _check(self, connection: Connection, queue: str, refused: ChannelClosedByBroker) -> None:
        channel = await connection.channel()
        try:
            await channel.ask(channel.raw.queue_declare, queue, passive=True)
        except ChannelClosedByBroker as error:
            text = f"The queue {queue!r} cannot be declared: {refused.reply_text}."
            if refused.reply_code == _ACCESS_REFUSED:
                fix = "Declare it yourself, or let the consumer's user configure it."
                raise AccessRefused(text, fix=fix) from error
            raise BadConsumer(text, fix="Give arguments that this broker knows, or declare it yourself.") from error
        channel.raw.close()

    def _on_return(self, _channel: object, method: Any, _properties: object, _body: bytes) -> None:
        # The return comes before the confirm of the same message.
        self._settle(f"{method.reply_text} (was it deleted?)")

    def _on_confirm(self, frame: Any) -> None:
        self._settle(None if isinstance(frame.method, spec.Basic.Ack) else "nack: the queue is full or failed")

    def _settle(self, refused: str | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(refused)
