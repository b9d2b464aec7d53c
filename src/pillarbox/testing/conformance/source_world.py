"""One member of one consumer, driven by hand: what the suites for sources work with."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from ...consume.sources import make_source
from ...event.message import ID, Message
from ...ports import Incoming, Source
from .consumer_world import WAIT, BrokerUnderTest, a_message


@dataclass(slots=True)
class SourceWorld:
    """A broker, a source of this test's own and the name of a consumer."""

    under_test: BrokerUnderTest
    consumer: str = field(default_factory=lambda: f"c-{uuid4().hex[:12]}")
    source: str = field(init=False)

    def __post_init__(self) -> None:
        self.source = self.under_test.new_source()

    @contextmanager
    def member(self, consumer: str | None = None, **options: Any) -> Iterator[Source]:
        """A member of the consumer, open until the end of the block."""
        source = make_source(self.under_test.broker, consumer or self.consumer, [self.source], options)
        source.open()
        try:
            yield source
        finally:
            source.close()

    def send(self, *messages: Message) -> list[str]:
        """Publish events to this test's source; their ids."""
        self.under_test.send(messages)
        return [message.event_id for message in messages]

    def message(self, n: int = 1, **changes: Any) -> Message:
        """An event for this test's source."""
        return a_message(self.source, n, **changes)


def fetch(member: Source, number: int, *, within: float = WAIT, limit: int = 100) -> list[Incoming]:
    """Poll until ``number`` messages came; AssertionError with those that did after ``within`` seconds."""
    found: list[Incoming] = []
    until = time.monotonic() + within
    while len(found) < number:
        assert time.monotonic() < until, f"{len(found)} of {number} messages came: {ids(found)}"
        found += member.poll(0.1, min(limit, number - len(found)))
    return found


def nothing_comes(member: Source, seconds: float) -> bool:
    """True when the member gets nothing for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if member.poll(0.1, 10):
            return False
    return True


def ids(messages: Sequence[Incoming]) -> list[str]:
    """The event ids of delivered messages."""
    return [message.headers.get(ID, "") for message in messages]
