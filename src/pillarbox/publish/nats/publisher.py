"""Publishing to JetStream streams with their acknowledgements."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Final

from ...errors import BrokerUnavailable, UsedAfterFork
from ...event.message import Message
from ...ports import Outcome, PublisherCapabilities, UnderWay
from .line import Flight
from .loop import LoopThread
from .session import Session
from .url import NatsUrl, parse_nats_url

_SPARE: Final = 0.95
"""Of the deadline: flights end a little before their callers give up, so that every message gets its own reason."""


class NatsPublisher:
    """Publishes each message to the subject that its destination names, and waits for its stream's acknowledgement.

    Streams are not made: a subject that none has is refused as a missing topic is. The event's id and subject are the
    message's id, by which the server drops what comes twice within the stream's duplicate window. ``deadline``
    (seconds) bounds each publish. Safe between threads; not across a fork (PB-028).
    """

    capabilities = PublisherCapabilities(
        scheme="nats", pipelined_order=True, positions=True, headers=True, one_in_flight=True
    )

    def __init__(self, url: NatsUrl, *, deadline: float) -> None:
        self._url = url
        self._deadline = deadline
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._session: Session | None = None

    @classmethod
    def from_url(cls, url: str, *, deadline: float) -> NatsPublisher:
        """``nats://user:password@host:4222``; several hosts, parted by commas, are tried in turn. See :mod:`.url`."""
        return cls(parse_nats_url(url), deadline=deadline)

    def open(self) -> None:
        """Connect, or raise BrokerUnavailable (PB-005) or AccessRefused (PB-008)."""
        loop, session = self._living()
        try:
            loop.ask(session.open(), self._deadline)
        except TimeoutError as error:
            raise BrokerUnavailable(
                f"NATS at {self._url.shown} does not answer within {self._deadline:g} s."
            ) from error

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send all, pipelined; one outcome per message in the same order, within the deadline."""
        return self._publish(Flight(messages))

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send the next message of a stream only when the one before is acknowledged; streams are pipelined."""
        return self._publish(Flight(messages, ordered=True))

    def begin_in_order(self, messages: Sequence[Message]) -> UnderWay:
        """The same, without waiting; the next call's messages stand behind those of this one in their streams."""
        flight = self._begin(Flight(messages, ordered=True))

        def under_way(seconds: float) -> list[Outcome] | None:
            return flight.results() if flight.done.wait(seconds) else None

        return under_way

    def close(self) -> None:
        """Close the connection; takes at most a few seconds."""
        with self._lock:
            loop, session, self._loop, self._session = self._loop, self._session, None, None
        if loop is not None and session is not None:
            loop.stop(session.close())

    def _publish(self, flight: Flight) -> list[Outcome]:
        if not flight.messages:
            return []
        self._begin(flight).done.wait(self._deadline)
        return flight.results()

    def _begin(self, flight: Flight) -> Flight:
        loop, session = self._living()
        loop.tell(session.begin, flight)
        return flight

    def _living(self) -> tuple[LoopThread, Session]:
        if os.getpid() != self._pid:
            raise UsedAfterFork("This NATS publisher was made in another process (before a fork).")
        with self._lock:
            if self._loop is None or self._session is None:
                self._loop = LoopThread("pillarbox-nats")
                self._session = Session(self._url, deadline=self._deadline * _SPARE)
            return self._loop, self._session
