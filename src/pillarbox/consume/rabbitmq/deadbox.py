"""The connection that dead letters leave by. Runs on the event loop's thread.

Not the subscription's: a broker low on memory blocks connections that publish, and would then read no acknowledgements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pika import BasicProperties, spec
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ...errors import AccessRefused, BrokerUnavailable
from ...publish.rabbitmq.refusals import reason_of
from ...publish.rabbitmq.url import RabbitUrl
from .channels import Channel, Connection, connect

_ACCESS_REFUSED = 403
_OTHER_ARGUMENTS = 406


class DeadBox:
    """Publishes one message at a time to a dead-letter queue, mandatory and confirmed. Reconnects when it has to."""

    def __init__(self, url: RabbitUrl, consumer: str, arguments: Mapping[str, Any]) -> None:
        self._url = url
        self._consumer = consumer
        self._arguments = dict(arguments)
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._answer: asyncio.Future[str | None] | None = None

    async def declare(self, queues: Sequence[str]) -> None:
        """Make sure that the queues are there; existing ones stay as they are. Durable, with the given arguments."""
        try:
            connection = await self._connected()
            for queue in queues:
                await self._declare(connection, queue)
        except (AMQPError, OSError) as error:
            await self.close()
            raise BrokerUnavailable(f"The dead-letter queues cannot be declared: {reason_of(error)}.") from error

    async def put(self, queue: str, body: bytes, properties: BasicProperties, seconds: float) -> None:
        """Return when the broker has it; raises BrokerUnavailable when that is not certain within ``seconds``."""
        try:
            refused = await self._publish(queue, body, properties, seconds)
        except (AMQPError, OSError) as error:
            await self.close()
            raise BrokerUnavailable(f"The dead letter for {queue!r} was not confirmed: {reason_of(error)}.") from error
        if refused is not None:
            await self.close()
            raise BrokerUnavailable(f"The dead-letter queue {queue!r} did not take it: {refused}.")

    async def close(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _publish(self, queue: str, body: bytes, properties: BasicProperties, seconds: float) -> str | None:
        channel = self._channel
        if channel is None or channel.closed.done():
            await self.declare([queue])
            channel = await self._confirming_channel()
        self._answer = asyncio.get_running_loop().create_future()
        channel.raw.basic_publish("", queue, body, properties, mandatory=True)
        refused: str | None = await channel.answer(self._answer, seconds)
        return refused

    async def _confirming_channel(self) -> Channel:
        channel = await (await self._connected()).channel()
        channel.raw.add_on_return_callback(self._on_return)
        await channel.ask(channel.raw.confirm_delivery, self._on_confirm)
        self._channel = channel
        return channel

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.lost.done():
            self._channel = None
            self._connection = await connect(self._url.nodes, f"pillarbox dead letters of {self._consumer}")
        return self._connection

    async def _declare(self, connection: Connection, queue: str) -> None:
        channel = await connection.channel()
        try:
            await channel.ask(channel.raw.queue_declare, queue, durable=True, arguments=self._arguments)
        except ChannelClosedByBroker as error:
            if error.reply_code == _OTHER_ARGUMENTS:
                return  # somebody made it, in their own way: as good
            if error.reply_code != _ACCESS_REFUSED:
                raise
            await self._check(connection, queue, refused=error.reply_text)
            return
        channel.raw.close()

    async def _check(self, connection: Connection, queue: str, *, refused: str) -> None:
        """Without the right to declare it, it will do if it is there."""
        channel = await connection.channel()
        try:
            await channel.ask(channel.raw.queue_declare, queue, passive=True)
        except ChannelClosedByBroker as error:
            raise AccessRefused(
                f"The dead-letter queue {queue!r} may not be declared: {refused}.",
                fix="Declare it yourself, or let the consumer's user configure it.",
            ) from error
        channel.raw.close()

    def _on_return(self, _channel: object, method: Any, _properties: object, _body: bytes) -> None:
        # The return comes before the confirm of the same message.
        self._settle(f"{method.reply_text} (was it deleted?)")

    def _on_confirm(self, frame: Any) -> None:
        self._settle(None if isinstance(frame.method, spec.Basic.Ack) else "nack: the queue is full or failed")

    def _settle(self, refused: str | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(refused)
