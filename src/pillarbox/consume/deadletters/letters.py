"""A dead letter of a consumer, and what a place that keeps them can do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, Protocol

from ...event.cloudevents import to_plain
from ...event.message import ID, TYPE
from .. import dead


class Letter(NamedTuple):
    """One message that the consumer gave up.

    ``place`` is where it stands among the dead letters: partition/offset, on NATS its sequence, or on RabbitMQ its
    number from the head of the queue, which changes when others leave. ``headers`` are the original ones and those that
    say why it is here. ``handle`` is the box's own.
    """

    place: str
    key: str | None
    headers: dict[str, str]
    size: int
    handle: object

    @property
    def event_id(self) -> str:
        """The event's id; empty for a message that had none."""
        return to_plain(self.headers).get(ID, "")

    @property
    def event_type(self) -> str:
        """The event's type; empty for a message that had none."""
        return to_plain(self.headers).get(TYPE, "")

    @property
    def reason(self) -> str:
        """Why it was given up."""
        return self.headers.get(dead.REASON, "")

    @property
    def attempts(self) -> str:
        """How often it was tried, as it was noted."""
        return self.headers.get(dead.ATTEMPTS, "")

    @property
    def given_up_at(self) -> str:
        """When, in RFC 3339."""
        return self.headers.get(dead.AT, "")

    @property
    def position(self) -> str:
        """Where the original stood in its source."""
        return self.headers.get(dead.POSITION, "")


class Order(NamedTuple):
    """Who wants a replay, and why: for the record."""

    by: str
    reason: str
    at: datetime


class DeadLetterBox(Protocol):
    """The dead letters of one consumer and one of its sources. One thread; every call has a deadline."""

    def open(self) -> None:
        """Connect. Raises BrokerUnavailable (PB-005), AccessRefused (PB-008), SourceMissing (PB-042: there is no such
        topic or queue) or MissingDriver (PB-003)."""
        ...

    def letters(self) -> Iterator[Letter]:
        """Those that are there when it is called and were not replayed, the oldest first."""
        ...

    def send(self, letter: Letter, order: Order) -> None:
        """Put a copy where its consumer, and no other, gets it; BrokerUnavailable when it is not safely there."""
        ...

    def remove(self, letter: Letter, order: Order) -> None:
        """It was sent: take it out of the dead letters, or note that it left. ``letters`` does not give it again.

        Called before ``letters`` is asked for the next one.
        """
        ...

    def close(self) -> None:
        """Let go; what was looked at stays where it is."""
        ...
