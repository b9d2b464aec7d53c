"""Publishing to RabbitMQ with confirms."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Final

from ...errors import BrokerUnavailable, UsedAfterFork
from ...event.message import Message
from ...ports import Outcome, PublisherCapabilities
from .batch import Batch
from .refusals import explain
from .session import Session
from .url import RabbitUrl, parse_rabbitmq_url

_CLOSE_SECONDS: Final = 2.0


class RabbitPublisher:
    """Publishes persistent, mandatory messages over one connection and waits for each one's confirm.

    One channel per exchange: a missing exchange spoils no neighbour. ``deadline`` (seconds) bounds each publish, since
    a frozen node shows by heartbeats only after half a minute. Safe between threads, one publish at a time; not across
    a fork (PB-028).
    """

    capabilities = PublisherCapabilities(
        scheme="amqp", pipelined_order=True, positions=False, headers=True, one_in_flight=True
    )

    def __init__(self, url: RabbitUrl, *, deadline: float) -> None:
        self._url = url
        self._deadline = deadline
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._pid = os.getpid()

    @classmethod
    def from_url(cls, url: str, *, deadline: float) -> RabbitPublisher:
        """``amqp://user:password@host:5672/vhost``; several hosts, parted by commas, are tried in turn."""
        hosts = url.count(",") + 1
        return cls(parse_rabbitmq_url(url, connect_timeout=min(5.0, deadline / (2 * hosts))), deadline=deadline)

    def open(self) -> None:
        """Connect, or raise BrokerUnavailable (PB-005) or AccessRefused (PB-008)."""
        done = threading.Event()
        errors: list[BaseException | None] = []

        def opened(error: BaseException | None) -> None:
            errors.append(error)
            done.set()

        with self._lock:
            self._living_session().connect(opened)
            if not done.wait(self._deadline):
                raise BrokerUnavailable(f"RabbitMQ at {self._url.shown} does not answer within {self._deadline:g} s.")
        if errors[0] is not None:
            raise explain(errors[0], self._url.shown) from errors[0]

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send all, pipelined; one outcome per message in the same order, within the deadline."""
        return self._publish(Batch(messages))

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send the next message of a stream (exchange and key) only when the one before is confirmed.

        The streams are pipelined among each other; a single one goes at the pace of one message in flight.
        """
        return self._publish(Batch(messages, ordered=True))

    def _publish(self, batch: Batch) -> list[Outcome]:
        if batch.finished:
            return []
        with self._lock:
            self._living_session().submit(batch)
            batch.wait(self._deadline)
            return batch.outcomes()

    def close(self) -> None:
        """Close the connection; takes at most a few seconds."""
        session, self._session = self._session, None
        if session is not None and os.getpid() == self._pid:
            session.stop(_CLOSE_SECONDS)

    def _living_session(self) -> Session:
        if os.getpid() != self._pid:
            raise UsedAfterFork("This RabbitMQ publisher was made in another process (before a fork).")
        if self._session is None or not self._session.alive:
            # A little earlier than the caller gives up, so that every message gets its own reason.
            self._session = Session(self._url, deadline=self._deadline * 0.95, patience=min(5.0, self._deadline / 4))
        return self._session
