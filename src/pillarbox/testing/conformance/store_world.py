"""What the store suite needs to be given: stores for several relays on one outbox, and a hand on its insides."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import pytest

from ...event.codec import JSON
from ...event.destination import Destination
from ...event.message import Message
from ...ports import Delivery, Parked, Sent, Settlement, WorkKey, WorkStore


class StoreCapabilities(NamedTuple):
    """What a store can be asked to show. A test that needs what is missing is skipped, naming it."""

    can_lose_events: bool = True  # an event's row can be deleted while its work rows stay
    can_break: bool = True  # the writing of receipts can be made to fail


class StoredReceipt(NamedTuple):
    """A receipt as it is stored."""

    relay: str
    token: int
    partition: int | None
    offset: int | None


class StoreUnderTest(Protocol):
    """The store's side of the suite: one empty outbox. Implement it once for your store."""

    capabilities: StoreCapabilities

    def store(self, relay_id: str, *, lease: float = 60.0) -> WorkStore:
        """A store of its own for this relay, on the same outbox."""
        ...

    def add(self, messages: Sequence[Message], more: Sequence[Destination] = ()) -> list[int]:
        """Commit events, each for its own destination and for ``more``; returns their row ids in order."""
        ...

    def states(self) -> dict[tuple[int, int], str]:
        """PENDING, PROCESSING, RETRY, DEAD or SENT for each (row id, destination number)."""
        ...

    def receipts(self) -> dict[tuple[int, int], StoredReceipt]:
        """The receipts by (row id, destination number)."""
        ...

    def parked(self) -> dict[tuple[int, int], tuple[str, int, str]]:
        """State, attempts and error of parked rows by (row id, destination number)."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Make leases and due times older by so much; waiting is a way, too."""
        ...

    def lose_event(self, number: int) -> None:
        """Delete the event with this row id, but not its work rows."""
        ...

    def ready_again(self, delivery: Delivery) -> None:
        """Put the work row of a sent delivery back, as an operator's hand might."""
        ...

    def broken_receipts(self) -> AbstractContextManager[None]:
        """Inside the block, writing a receipt fails."""
        ...


@dataclass(slots=True)
class StoreWorld:
    """One test's outbox."""

    under_test: StoreUnderTest

    def add(self, count: int = 1, **changes: Any) -> list[int]:
        """Commit ``count`` events with keys of their own."""
        return self.under_test.add([event(**({"key": f"key-{n}"} | changes)) for n in range(count)])

    def states(self) -> list[str]:
        """The states of all deliveries, by row id and destination."""
        found = self.under_test.states()
        return [found[place] for place in sorted(found)]

    def state(self, key: WorkKey) -> str:
        """The state of one delivery."""
        return self.under_test.states()[key.id, key.dest]


def event(**changes: Any) -> Message:
    """A message with everything in it; ``changes`` replace fields."""
    base = Message(
        event_id=str(uuid4()),
        event_type="thing.happened",
        schema_version=3,
        aggregate_type="thing",
        aggregate_id="7",
        key="7",
        occurred_at=datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        headers=None,
        content_type=JSON,
        payload=b'{"n":1}',
        destination="things",
        routing_key=None,
    )
    return base._replace(**changes)


def all_sent(token: int, deliveries: Sequence[Delivery]) -> Settlement:
    """Everything was confirmed, at offsets equal to the row ids."""
    return Settlement(token, sent=[Sent(one.key, 1, one.key.id) for one in deliveries])


def failed(delivery: Delivery, *, due_in: float | None = 30.0, error: str = "refused") -> Parked:
    """One more failed attempt: RETRY after ``due_in`` seconds, or DEAD with None."""
    state = "DEAD" if due_in is None else "RETRY"
    return Parked(delivery.key, delivery.lane, state, due_in, delivery.attempts + 1, error)  # type: ignore[arg-type]


def confirmed(delivery: Delivery) -> Sent:
    """A broker without positions confirmed it."""
    return Sent(delivery.key, None, None)


def needs(capability: bool, name: str) -> None:
    """Skip, naming what the store does not declare."""
    if not capability:
        pytest.skip(f"this store does not declare {name}")
