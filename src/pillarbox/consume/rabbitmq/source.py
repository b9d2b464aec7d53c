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
from ...ports import Incoming
from ...publish.rabbitmq.url import RabbitUrl, parse_rabbitmq_url
from ..dead import dead_headers, dead_name
from ..retries import retry_headers, retry_name
from .delays import DELAY_ARGUMENTS, SAFE_ARGUMENTS, Queue, waiting_queue
from .delivery import Delivery, copy_properties
from .sidequeues import SideQueues
from .subscription import Subscription

T = TypeVar("T")
MAX_QUEUE_NAME_BYTES = 255 - len(".86400000")  # what the queues of delays add
MAX_PREFETCH = 65_535


class RabbitSource:
    """Queues at ``amqp://`` or ``amqps://``. They must exist; the consumer's own queues for dead letters and retries
    are declared where missing (durable).

    ``prefetch`` is how many unacknowledged messages of a queue the broker hands out at most. The others are arguments
    of new queues: ``dead_queue_arguments`` and ``retry_queue_arguments``, quorum queues by default (``{}``
    leaves it to the broker), and ``delay_queue_arguments`` for those in which a retry waits: quorum queues that pass on
    at least once (RabbitMQ 3.10). ``deadline`` (seconds) bounds each wait for the broker.
    """

    def __init__(
        self,
        url: RabbitUrl,
        consumer: str,
        sources: Sequence[str],
        *,
        prefetch: int = 100,
        deadline: float = 10.0,
        dead_queue_arguments: Mapping[str, Any] = SAFE_ARGUMENTS,
        retry_queue_arguments: Mapping[str, Any] = SAFE_ARGUMENTS,
        delay_queue_arguments: Mapping[str, Any] = DELAY_ARGUMENTS,
    ) -> None:
        if not 1 <= prefetch <= MAX_PREFETCH:
            raise BadConsumer(f"prefetch is {prefetch}.", fix=f"Give a number from 1 to {MAX_PREFETCH}.")
        self._consumer = consumer
        self._dead = {name: _queue(dead_name(name, consumer), dead_queue_arguments) for name in sources}
        self._retries = {name: _queue(retry_name(name, consumer), retry_queue_arguments) for name in sources}
        self._delay_arguments = dict(delay_queue_arguments)
        self._deadline = deadline
        self._arrived: deque[Incoming] = deque()  # as long as the prefetch limits at most
        self._changed = threading.Condition()
        self._loop = asyncio.SelectorEventLoop()
        queues = {name: name for name in sources} | {queue.name: name for name, queue in self._retries.items()}
        self._subscription = Subscription(
            url, consumer, queues, prefetch=prefetch, deliver=self._deliver, forget=self._forget
        )
        self._side = SideQueues(url, consumer)
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
            position=delivery.original,
            reason=reason,
            attempts=attempts,
            at=datetime.now(UTC),
        )
        self._copy(self._dead[incoming.source], incoming, added)

    def put_back(self, incoming: Incoming, seconds: float, reason: str, attempts: int) -> None:
        """Publish a copy to a queue in which it waits, likewise; the broker moves it to the consumer's retry queue.

        Times are rounded up to the next step of :data:`.delays.STEPS_MS`, a day at most.
        """
        queue = waiting_queue(self._retries[incoming.source], seconds, self._delay_arguments)
        original, now = _delivery(incoming).original, datetime.now(UTC)
        added = retry_headers(seconds=seconds, now=now, position=original, reason=reason, attempts=attempts)
        self._copy(queue, incoming, added)

    def _copy(self, queue: Queue, incoming: Incoming, added: list[tuple[str, str]]) -> None:
        properties = copy_properties(_delivery(incoming).properties, added)
        self._ask(self._side.put(queue, incoming.body, properties, self._deadline))

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
        self._serving = asyncio.ensure_future(self._subscription.serve(self._opened, before=self._declare_side_queues))
        await asyncio.wait([self._serving])
        if not self._serving.cancelled() and self._serving.exception() is not None:
            self._broken = self._serving.exception()
        await (self._farewell or self._side.close())

    def _cancel(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            self._farewell = asyncio.ensure_future(self._side.close())  # both say goodbye at the same time

    async def _declare_side_queues(self) -> None:
        # At the start, and not at the first poison message: a missing permission should show now.
        await self._side.declare([*self._dead.values(), *self._retries.values()])

    async def _acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        self._subscription.acknowledge(deliveries)

    def _deliver(self, incoming: Incoming) -> None:
        with self._changed:
            self._arrived.append(incoming)
            self._changed.notify()

    def _forget(self) -> None:
        with self._changed:
            self._arrived.clear()

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise RuntimeError("The thread of the RabbitMQ connection has ended.") from self._broken

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # the loop is closed
            work.close()
            raise BrokerUnavailable("The connection to RabbitMQ is closed.") from error
        try:
            return asked.result(2 * self._deadline + 5.0)
        except TimeoutError as error:
            asked.cancel()  # going on, it would meet the next attempt, and take its confirm for its own
            raise BrokerUnavailable("RabbitMQ did not answer in time.") from error


def _delivery(incoming: Incoming) -> Delivery:
    assert isinstance(incoming.position, Delivery)
    return incoming.position


def _queue(name: str, arguments: Mapping[str, Any]) -> Queue:
    if len(name.encode()) > MAX_QUEUE_NAME_BYTES:
        raise BadConsumer(
            f"The queue's name {name!r} is longer than {MAX_QUEUE_NAME_BYTES} bytes.",
            fix="Shorten the consumer's name.",
        )
    return Queue(name, dict(arguments))
