"""What the publisher suite needs to be given: a broker that it can publish to and read back from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from ...event.codec import JSON
from ...event.destination import Destination
from ...event.message import Message
from ...ports import Publisher


class Arrived(NamedTuple):
    """A message as a reader of the broker finds it. ``headers`` is everything that is not body, key or place."""

    headers: dict[str, str]
    body: bytes
    key: str | None
    partition: int | None = None
    offset: int | None = None


class PublisherUnderTest(Protocol):
    """The broker's side of the suite. Implement it once for your broker."""

    too_large: int | None
    """A payload of so many bytes is refused by the broker; None: it takes everything."""

    def publisher(self) -> Publisher:
        """A new publisher, not opened, with a deadline of 10 seconds or so."""
        ...

    def new_destination(self) -> Destination:
        """Make an empty topic, or an exchange with a queue, that nobody has used."""
        ...

    def missing_destination(self) -> Destination | None:
        """A destination that does not exist, and that publishing does not create; None: there is no such thing."""
        ...

    def create(self, destination: Destination) -> None:
        """Make a missing destination exist."""
        ...

    def arrived(self, destination: Destination, at_least: int) -> list[Arrived]:
        """All that arrived, once there are ``at_least`` so many (a few seconds), in order within a partition."""
        ...


@dataclass(slots=True)
class PublisherWorld:
    """One test's broker, with messages to send."""

    under_test: PublisherUnderTest

    @contextmanager
    def publisher(self) -> Iterator[Publisher]:
        """An opened publisher, closed at the end."""
        with closing(self.under_test.publisher()) as publisher:
            publisher.open()
            yield publisher

    def arrived_ids(self, destination: Destination, at_least: int) -> list[str]:
        """Event ids of what arrived."""
        return [one.headers["id"] for one in self.under_test.arrived(destination, at_least)]


def message(to: Destination, /, **changes: Any) -> Message:
    """A message with everything in it; ``changes`` replace fields."""
    base = Message(
        event_id=str(uuid4()),
        event_type="thing.happened",
        schema_version=1,
        aggregate_type="thing",
        aggregate_id="7",
        key="7",
        occurred_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        headers=None,
        content_type=JSON,
        payload=b'{"n":1}',
        destination=to.name,
        routing_key=to.routing_key,
    )
    return base._replace(**changes)


def messages(to: Destination, count: int, *, keys: int = 7) -> list[Message]:
    """``count`` messages that take turns between ``keys`` keys; the payload is the number."""
    return [message(to, key=f"k-{n % keys}", payload=str(n).encode()) for n in range(count)]


def same(sent: Sequence[Message], arrived: Sequence[Arrived]) -> bool:
    """Each sent message arrived exactly once, byte for byte, and nothing else did."""
    found = {one.headers["id"]: one.body for one in arrived}
    return len(found) == len(arrived) and found == {one.event_id: one.payload for one in sent}
