"""The face of the RabbitMQ source: what the consumer's thread calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from ...errors import BadConsumer, BrokerUnavailable
from ...event.message import KEY
from ...ports import Incoming
from ...publish.rabbitmq.url import RabbitUrl, parse_rabbitmq_url
from ..dead import dead_headers, dead_name
from .deadbox import DeadBox
from .delivery import Delivery, dead_properties
from .subscription import Subscription

T = TypeVar("T")
MAX_QUEUE_NAME_BYTES = 255


class RabbitSource:
    """Queues at ``amqp://`` or ``amqps://``. They must exist; dead-letter queues are declared where missing (durable).

    ``prefetch`` is how many unacknowledged messages the broker hands out at most. ``dead_queue_arguments`` are those of
    new dead-letter queues, e.g. ``{"x-queue-type": "quorum"}``. ``deadline`` (seconds) bounds each wait for the broker.
    """

    def __init__(
        self,
        url: RabbitUrl,
        consumer: str,
        sources: Sequence[str],
        *,
        prefetch: int = 100,
        deadline: float = 10.0,
        dead_queue_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self._consumer = consumer
        self._dead_queues = {source: _checked(dead_name(source, consumer)) for source in sources}
        self._deadline = deadline
        self._arrived: deque[Incoming] = deque()  # as long as the prefetch limit at most
        self._changed = threading.Condition()
        self._loop = asyncio.SelectorEventLoop()
        self._subscription = Subscription(
            url, consumer, sources, prefetch=prefetch, deliver=self._deliver, forget=self._forget
        )
        self._dead_box = DeadBox(url, consumer, dead_queue_arguments or {})
        self._thread = threading.Thread(target=self._run, name=f"pillarbox-rabbitmq-{consumer}", daemon=True)
        self._opened: Future[None] = Future()
        self._serving: asyncio.Future[None] | None = None
        self._farewell: asyncio.Future[None] | None = None
        self._broken: BaseException | None = None

    @classmethod
    def from_url(
        cls, url: str, consumer: str, sources: Sequence[str], *, connect_timeout: float = 10.0, **options: Any
    ) -> RabbitSource:
        """Make one from a URL; see :func:`pillarbox.publish.rabbitmq.url.parse_rabbitmq_url`."""
        return cls(parse_rabbitmq_url(url, connect_timeout=connect_timeout), consumer, sources, **options)

    def open(self) -> None:
        """Connect and subscribe; raises SourceMissing (PB-042), BrokerUnavailable (PB-005), AccessRefused (PB-008)."""
        self._thread.start()
        until = time.monotonic() + 6 * self._deadline
        while not self._opened.done():
            self._raise_if_broken()
            if time.monotonic() > until:
                raise BrokerUnavailable("RabbitMQ did not answer in time.")
            time.sleep(0.01)
        self._opened.result()

    def poll(self, timeout: float, limit: int) -> list[Incoming]:
        """What has arrived; deliveries and heartbeats go on in the other thread."""
        self._raise_if_broken()
        until = time.monotonic() + timeout
        with self._changed:
            while limit == 0 or not self._arrived:
                left = until - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(left)
            return [self._arrived.popleft() for _ in range(min(limit, len(self._arrived)))]

    def holds(self, incoming: Incoming) -> bool:
        """False once the channel that delivered it is gone: the broker delivers it again."""
        return _delivery(incoming).epoch == self._subscription.epoch

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        """Acknowledge on the channels that delivered; those of a lost channel come again."""
        self._ask(self._acknowledge([_delivery(incoming) for incoming in done]))

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        """Publish a copy to the dead-letter queue and wait for the broker's confirm."""
        delivery = _delivery(incoming)
        added = dead_headers(
            source=incoming.source,
            consumer=self._consumer,
            position=f"{delivery.exchange}/{delivery.routing_key}",
            reason=reason,
            attempts=attempts,
            at=datetime.now(UTC),
        )
        queue, properties = self._dead_queues[incoming.source], dead_properties(delivery.properties, added)
        self._ask(self._dead_box.put(queue, incoming.body, properties, self._deadline))

    def close(self) -> None:
        """Unsubscribe and close both connections."""
        if self._thread.ident is None:
            self._loop.close()
            return
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(self._deadline)

    # On the event loop's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._serving = asyncio.ensure_future(self._subscription.serve(self._opened, before=self._declare_dead_queues))
        await asyncio.wait([self._serving])
        if not self._serving.cancelled() and self._serving.exception() is not None:
            self._broken = self._serving.exception()
        await (self._farewell or self._dead_box.close())

    def _cancel(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            self._farewell = asyncio.ensure_future(self._dead_box.close())  # both say goodbye at the same time

    async def _declare_dead_queues(self) -> None:
        # At the start, and not at the first poison message: a missing permission should show now.
        await self._dead_box.declare(list(self._dead_queues.values()))

    async def _acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        self._subscription.acknowledge(deliveries)

    def _deliver(self, incoming: Incoming) -> None:
        key = incoming.headers.get(KEY)
        with self._changed:
            self._arrived.append(incoming._replace(key=key))
            self._changed.notify()

    def _forget(self) -> None:
        with self._changed:
            self._arrived.clear()

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise RuntimeError("The thread of the RabbitMQ connection has ended.") from self._broken

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * self._deadline + 5.0)
        except TimeoutError as error:
            raise BrokerUnavailable("RabbitMQ did not answer in time.") from error
        except RuntimeError as error:  # the loop is closed
            work.close()
            raise BrokerUnavailable("The connection to RabbitMQ is closed.") from error


def _delivery(incoming: Incoming) -> Delivery:
    assert isinstance(incoming.position, Delivery)
    return incoming.position


def _checked(queue: str) -> str:
    if len(queue.encode()) > MAX_QUEUE_NAME_BYTES:
        raise BadConsumer(
            f"The dead-letter queue's name {queue!r} is longer than {MAX_QUEUE_NAME_BYTES} bytes.",
            fix="Shorten the consumer's name.",
        )
    return queue
