"""The face of the NATS source: what the consumer's thread calls."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar, get_args

from ...errors import BadConsumer, BrokerUnavailable
from ...ports import Incoming
from ...publish.nats.loop import LoopThread
from ...publish.nats.url import NatsUrl, parse_nats_url
from ...publish.subjects import flaw
from ..dead import dead_headers
from ..retries import retry_headers
from .holding import Delivery, Holding
from .names import dead_subject, retry_subject
from .sidestreams import put
from .subscription import Subscription

T = TypeVar("T")

Start = Literal["all", "new"]

CLOSE_SECONDS: Final = 6.0
MAX_PREFETCH: Final = 10_000
MAX_ACK_PENDING: Final = 20_000
"""What all members of a consumer may hold together; the server's own default of 1,000 is ten of them."""


class NatsSource:
    """Subjects, or patterns such as ``orders.*``, of JetStream streams at ``nats://host:port?stream=NAME``. The streams
    must exist; the consumers at the server, and the streams ``pillarbox-dead`` and ``pillarbox-retry``, are made.

    ``prefetch`` is how many messages are held unacknowledged. ``ack_wait`` (seconds) is how long the messages of a
    killed process stay with it; handlers may take longer. It counts, as ``start``, where the consumer is new: ``all``
    reads what is there, ``new`` only what comes. ``deadline`` (seconds) bounds each wait for the server.
    """

    def __init__(
        self,
        url: NatsUrl,
        consumer: str,
        sources: Sequence[str],
        *,
        prefetch: int = 500,
        ack_wait: float = 30.0,
        start: Start = "all",
        deadline: float = 5.0,
    ) -> None:
        if not 1 <= prefetch <= MAX_PREFETCH:
            raise BadConsumer(f"prefetch is {prefetch}.", fix=f"Give a number from 1 to {MAX_PREFETCH:,}.")
        if not 0.5 <= ack_wait <= 86_400:
            raise BadConsumer(f"ack_wait is {ack_wait:g} s.", fix="Give seconds from 0.5 to 86,400.")
        if start not in get_args(Start):
            raise BadConsumer(f"start is {start!r}.", fix="Say 'all' or 'new'.")
        for source in sources:
            if (wrong := flaw(source)) is not None:
                raise BadConsumer(f"Nothing can be read from {source!r}: {wrong}.", fix="Correct `sources`.")
        self._url = url
        self._consumer = consumer
        self._sources = tuple(sources)
        self._deadline = deadline
        self._holding = Holding()
        self._arrived: deque[Incoming] = deque()  # as long as the prefetch limits at most
        self._changed = threading.Condition()
        self._loop = LoopThread(f"pillarbox-nats-{consumer}")
        wanted = {
            "ack_policy": "explicit",
            "ack_wait": int(ack_wait * 1e9),
            "max_deliver": -1,  # how often is for the consumer to say, and the server tells nobody
            "max_ack_pending": MAX_ACK_PENDING,
            "deliver_policy": start,
            "replay_policy": "instant",
        }
        self._subscription = Subscription(
            url,
            consumer,
            sources,
            prefetch=prefetch,
            seconds=deadline,
            wanted=wanted,
            holding=self._holding,
            deliver=self._deliver,
        )
        self._opened: Future[None] = Future()
        self._serving: Future[None] | None = None

    @classmethod
    def from_url(cls, url: str, consumer: str, sources: Sequence[str], **options: Any) -> NatsSource:
        """Make one from a URL; see :func:`pillarbox.publish.nats.url.parse_nats_url`."""
        return cls(parse_nats_url(url), consumer, sources, **options)

    def open(self) -> None:
        """Connect and set up; raises SourceMissing (PB-042), BrokerUnavailable (PB-005), AccessRefused (PB-008) or
        BadConsumer (PB-041)."""
        self._serving = self._loop.start(self._subscription.serve(self._opened))
        wait([self._opened, self._serving], 6 * self._deadline, FIRST_COMPLETED)
        if not self._opened.done():
            self._raise_if_broken()
            raise BrokerUnavailable(f"NATS at {self._url.shown} did not answer in time.")
        self._opened.result()

    def poll(self, timeout: float, limit: int) -> list[Incoming]:
        """What has arrived; deliveries go on in the other thread, which also keeps them ours."""
        self._raise_if_broken()
        until = time.monotonic() + timeout
        with self._changed:
            while limit == 0 or not self._arrived:
                left = until - time.monotonic()
                if left <= 0:
                    return []
                self._changed.wait(left)
            found: list[Incoming] = []
            while self._arrived and len(found) < limit:
                incoming = self._arrived.popleft()
                if self.holds(incoming):
                    found.append(incoming)
            return found

    def holds(self, incoming: Incoming) -> bool:
        """False once the server has not heard of it for its ack_wait: it comes again, perhaps elsewhere."""
        return self._holding.holds(_delivery(incoming))

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        """Tell the server that they are finished."""
        self._ask(self._subscription.acknowledge([_delivery(incoming) for incoming in done]))

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        """Publish a copy to the stream of dead letters, acknowledged."""
        added = dead_headers(
            source=incoming.source,
            consumer=self._consumer,
            position=_delivery(incoming).original,
            reason=reason,
            attempts=attempts,
            at=datetime.now(UTC),
        )
        self._copy(dead_subject(incoming.source, self._consumer), incoming, added)

    def put_back(self, incoming: Incoming, seconds: float, reason: str, attempts: int) -> None:
        """Publish a copy to the retry stream, likewise. The server gives it out, and is told how long to wait."""
        original, now = _delivery(incoming).original, datetime.now(UTC)
        added = retry_headers(seconds=seconds, now=now, position=original, reason=reason, attempts=attempts)
        self._copy(retry_subject(incoming.source, self._consumer), incoming, added)

    def close(self) -> None:
        """Give back what is not finished and close the connection."""
        self._loop.stop(self._subscription.close(), seconds=CLOSE_SECONDS)

    def _copy(self, subject: str, incoming: Incoming, added: Sequence[tuple[str, str]]) -> None:
        self._ask(self._put(subject, incoming, dict(added)))

    async def _put(self, subject: str, incoming: Incoming, added: dict[str, str]) -> None:
        connection = self._subscription.connection
        if connection is None:
            raise BrokerUnavailable("The connection to NATS is lost.")
        place = _delivery(incoming).place
        headers = incoming.headers
        await put(connection, subject, incoming.body, headers, added, msg_id=place, seconds=self._deadline)

    def _deliver(self, incoming: Incoming) -> None:
        with self._changed:
            self._arrived.append(incoming)
            self._changed.notify()

    def _raise_if_broken(self) -> None:
        if self._serving is not None and self._serving.done():
            raise RuntimeError("The thread of the NATS connection has ended.") from self._serving.exception()

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.ask(work, 2 * self._deadline)
        except TimeoutError as error:
            raise BrokerUnavailable("NATS did not answer in time.") from error


def _delivery(incoming: Incoming) -> Delivery:
    assert isinstance(incoming.position, Delivery)
    return incoming.position
