"""The connection that delivers, subscribed to the queues, and again after each loss. On the event loop's thread."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from pika.exceptions import AMQPError, ChannelClosedByBroker

from ...errors import AccessRefused, BrokerUnavailable, PillarboxError, SourceMissing
from ...event.message import KEY
from ...ports import Incoming
from ...publish.rabbitmq.refusals import NOT_FOUND, explain, reason_of
from ...publish.rabbitmq.url import RabbitUrl
from ..plan import OUTAGE_RETRY
from ..retries import HEADERS, read_retry_headers
from .channels import Channel, Connection, connect
from .delivery import Delivery, text_headers, without_deaths

_log = logging.getLogger("pillarbox.consume.rabbitmq")

_ACCESS_REFUSED = 403
_START_FAILURES = (AMQPError, OSError, PillarboxError)


class Subscription:
    """Passes deliveries on, acknowledges them on the channel that they came by, and reconnects.

    ``epoch`` grows with every channel: a tag of an older one means another message now and is never acknowledged.
    ``queues`` maps each queue to the source that it stands for: itself, or for a retry queue the original one.
    ``deliver`` is called with each message, ``forget`` when all that were delivered so far went back to the queue.
    """

    def __init__(
        self,
        url: RabbitUrl,
        consumer: str,
        queues: Mapping[str, str],
        *,
        prefetch: int,
        deliver: Callable[[Incoming], None],
        forget: Callable[[], None],
    ) -> None:
        self.epoch = 0
        self._url = url
        self._consumer = consumer
        self._queues = dict(queues)
        self._prefetch = prefetch
        self._deliver = deliver
        self._forget = forget
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._cancelled: asyncio.Future[str] | None = None

    async def serve(self, opened: Future[None], *, before: Callable[[], Awaitable[None]]) -> None:
        """Stay subscribed until cancelled; ``before`` is awaited before each subscription.

        ``opened`` tells how the first attempt went, the only one that may fail.
        """
        try:
            await self._first(opened, before)
            await self._stay(before)
        except _START_FAILURES as error:
            opened.set_exception(self._explain(error))
        finally:
            await self._drop()

    async def _first(self, opened: Future[None], before: Callable[[], Awaitable[None]]) -> None:
        await self._check_queues()
        await before()
        await self._subscribe()
        opened.set_result(None)

    async def _stay(self, before: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            if self._channel is not None:
                await self._until_lost()
            await self._drop()
            await asyncio.sleep(OUTAGE_RETRY.delay(failures + 1, random.random()))
            try:
                await before()
                await self._subscribe()
                failures = 0
            except _START_FAILURES as error:
                failures += 1
                _log.warning("consumer %s: %s", self._consumer, self._explain(error))
                await self._drop()

    def _explain(self, error: Exception) -> PillarboxError:
        return error if isinstance(error, PillarboxError) else explain(error, self._url.shown)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge those of this channel; raises BrokerUnavailable when there is none."""
        channel = self._channel
        if channel is None or not channel.raw.is_open:
            raise BrokerUnavailable("The connection to RabbitMQ was lost before the acknowledgement.")
        for delivery in deliveries:
            if delivery.epoch == self.epoch:
                channel.raw.basic_ack(delivery.tag)

    async def _subscribe(self) -> None:
        self._connection = self._connection or await self._connect()
        self._channel = channel = await self._connection.channel()
        self.epoch += 1
        self._cancelled = asyncio.get_running_loop().create_future()
        channel.raw.add_on_cancel_callback(self._on_cancel)
        await channel.ask(channel.raw.basic_qos, prefetch_count=self._prefetch)
        for queue, source in self._queues.items():
            arrived = partial(self._on_message, self.epoch, queue, source)
            await self._of_queue(queue, channel.ask(channel.raw.basic_consume, queue, arrived))

    async def _check_queues(self) -> None:
        self._connection = await self._connect()
        channel = await self._connection.channel()
        for queue in set(self._queues.values()):
            await self._of_queue(queue, channel.ask(channel.raw.queue_declare, queue, passive=True))
        channel.raw.close()

    async def _connect(self) -> Connection:
        return await connect(self._url.nodes, f"pillarbox consumer {self._consumer}")

    async def _of_queue(self, queue: str, answer: Awaitable[object]) -> None:
        try:
            await answer
        except ChannelClosedByBroker as error:
            if error.reply_code == NOT_FOUND:
                raise SourceMissing(f"RabbitMQ at {self._url.shown} has no queue {queue!r}.") from error
            if error.reply_code == _ACCESS_REFUSED:
                raise AccessRefused(f"RabbitMQ refused access to the queue {queue!r}: {error.reply_text}.") from error
            raise

    async def _until_lost(self) -> None:
        assert self._channel is not None
        assert self._cancelled is not None
        ends: list[asyncio.Future[Any]] = [self._channel.closed, self._cancelled]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        why = reason_of(self._channel.closed.result()) if self._channel.closed.done() else self._cancelled.result()
        _log.warning("consumer %s: the subscription was lost: %s", self._consumer, why)

    async def _drop(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self.epoch += 1
        self._forget()
        if connection is not None:
            await connection.close()

    def _on_message(
        self, epoch: int, queue: str, source: str, _channel: Any, method: Any, properties: Any, body: bytes
    ) -> None:
        if epoch != self.epoch:
            return
        delivery = Delivery(epoch, method.delivery_tag, method.exchange, method.routing_key, properties)
        headers = text_headers(properties.headers)
        attempts = 0
        if queue != source:
            waited = read_retry_headers(headers)
            attempts = waited.attempts
            properties.headers = _as_it_was(properties.headers or {}, queue)
            headers = text_headers(properties.headers)
            delivery = delivery._replace(before=waited.position)
        self._deliver(Incoming(source, headers, body, headers.get(KEY), delivery, bool(method.redelivered), attempts))

    def _on_cancel(self, _frame: object) -> None:
        # The broker ends a subscription when its queue is deleted, or its node goes away.
        if self._cancelled is not None and not self._cancelled.done():
            self._cancelled.set_result("the broker cancelled it; was the queue deleted?")


def _as_it_was(headers: Mapping[str, Any], queue: str) -> dict[str, Any]:
    """The headers that the message had before it was put back."""
    return {name: value for name, value in without_deaths(headers, queue).items() if name not in HEADERS}
