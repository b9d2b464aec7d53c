"""Ordered batches under way: the next one is handed over while the one before it waits for its reports.

They share one gapless producer, and a stream its partition, so nothing of the later batch is accepted before what the
earlier one has of the same stream. Only what cannot go wrong in advance goes ahead: known topics, primed partitions,
room in the client's queue, no sign of trouble. The first failure ends the epoch for all of them: the producer is
emptied and thrown away, and each batch in its turn sends the rest by itself, behind what was not confirmed before it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer

from ...event.message import Message
from ...ports import Outcome
from ..streams import Gate
from .client import Client, serve
from .flight import Flight
from .priming import unprimed
from .sending import hand_over
from .topics import Topics

_SLICE: Final = 0.002
"""Seconds. A flush ends only when the batches behind are there, too, so the first one is looked at so often."""

_CALM: Final = 0.5
"""Seconds without any report after which the first batch is waited for with all patience, and nothing goes ahead."""

_MESSAGES: Final = 50_000
"""Under way at once, at most: half of what the client queues."""


class Begun:
    """A batch. ``producer``: who has it; None where it is not handed over, or its producer was thrown away.

    ``whole``: the producer has all of it. ``behind``: what the batches before it left unconfirmed since it was begun.
    """

    __slots__ = ("behind", "bytes", "flight", "outcomes", "prepared", "producer", "until", "whole")

    def __init__(self, flight: Flight, until: float) -> None:
        self.flight = flight
        self.until = until
        self.prepared = False  # its topics were looked up, and the client asked for trouble
        self.producer: Producer | None = None
        self.whole = False
        self.behind: list[Message] = []
        self.bytes = sum([len(message.payload) for message in flight.messages])
        self.outcomes: list[Outcome] | None = None


class Line:
    """First in, first out. For one thread at a time."""

    def __init__(self, client: Client, topics: Topics) -> None:
        self._client = client
        self._topics = topics
        self._batches: deque[Begun] = deque()
        self._left = 0  # messages in the producer when it was served last
        self._quiet_since = 0.0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __iter__(self) -> Iterator[Begun]:
        return iter(self._batches)

    @property
    def first(self) -> Begun:
        """Whose turn it is."""
        return self._batches[0]

    def add(self, one: Begun) -> None:
        """Hand it over if that is safe, and put it at the end."""
        if self._may_go(one):
            one.producer = self._client.producer("ordered")
            one.whole = hand_over(one.producer, one.flight, range(len(one.flight.messages)), one.until, Gate())
            self._quiet_since = time.monotonic()
        self._batches.append(one)

    def only_waits(self, seconds: float) -> bool:
        """Serve reports for up to ``seconds``: True as long as nothing but more of them is needed for the first."""
        one, now = self.first, time.monotonic()
        if one.producer is None or self._has_failed():
            return False
        left, broken = serve(one.producer, min(seconds, _SLICE) if len(self._batches) > 1 else seconds)
        one.flight.broken = one.flight.broken or broken
        if left != self._left:
            self._left, self._quiet_since = left, now
        waits = not (self._has_failed() or one.flight.is_confirmed)
        return waits and now < one.until and now - self._quiet_since < _CALM

    def flights(self) -> list[Flight]:
        """Of the batches that the producer has."""
        return [one.flight for one in self._batches if one.producer is not None]

    def end_epoch(self) -> None:
        """The producer is of no more use."""
        self._client.discard("ordered")
        for one in self._batches:
            one.producer = None
            one.flight.broken = one.flight.reported = False

    def end_first(self, deadline: float) -> None:
        """It has its outcomes: those behind it get their time from now on, and wait for what it leaves unconfirmed."""
        ended = self._batches.popleft()
        now, unconfirmed = time.monotonic(), ended.flight.unconfirmed() if self._batches else []
        for one in self._batches:
            one.until = now + deadline
            one.behind += unconfirmed

    def _has_failed(self) -> bool:
        return any(one.flight.has_failed for one in self._batches)

    def _may_go(self, one: Begun) -> bool:
        names, batches = one.flight.destinations, [*self._batches, one]
        return (
            all(before.producer is not None and before.whole for before in self._batches)
            and not any(this.flight.has_failed or this.flight.refused for this in batches)
            and not (self._batches and self._client.is_troubled)
            and sum(this.bytes for this in batches) < self._client.queue_bytes // 2
            and sum(len(this.flight.messages) for this in batches) <= _MESSAGES
            and not self._topics.unknown(names)
            and not unprimed(self._client.primed, self._topics.partitions, names)
        )
