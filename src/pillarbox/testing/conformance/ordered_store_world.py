"""What the suite of the partition lease needs: stores for several relays on one outbox, and a hand on its insides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from ...event.destination import Destination
from ...event.message import Message
from ...policy.lanes import lane_of
from ...ports import (
    Aside,
    Delivery,
    Hold,
    OrderedSettled,
    OrderedSettlement,
    OrderedStore,
    Partition,
    Progress,
    Sent,
    SentParked,
    Span,
    Stream,
    Tenure,
    WorkKey,
)
from .store_world import StoredReceipt, event

PARTITIONS = 16


class OrderedCapabilities(NamedTuple):
    """What a store can be asked to show. A test that needs what is missing is skipped, naming it."""

    can_break: bool = True  # the writing of receipts can be made to fail
    sees_open_writers: bool = True  # a transaction can be open beside the relay's own


class OpenTransaction(Protocol):
    """A writer's transaction that stays open."""

    def add(self, messages: Sequence[Message]) -> list[int]:
        """Write events; returns their row ids."""
        ...

    def commit(self) -> None:
        """Let others see them."""
        ...

    def rollback(self) -> None:
        """Forget them."""
        ...


class OrderedUnderTest(Protocol):
    """The store's side of the suite: one empty outbox of 16 partitions. Implement it once for your store."""

    capabilities: OrderedCapabilities

    def ordered_store(self, relay_id: str, *, lease: float = 60.0) -> OrderedStore:
        """A store of its own for this relay, on the same outbox; not entered yet."""
        ...

    def add(self, messages: Sequence[Message], more: Sequence[Destination] = ()) -> list[int]:
        """Commit events, each for its own destination and for ``more``; returns their row ids in order."""
        ...

    def schedule(self, message: Message, seconds: float) -> int:
        """Commit an event that may go in so many seconds."""
        ...

    def begin(self) -> OpenTransaction:
        """A writer's transaction."""
        ...

    def states(self) -> dict[tuple[int, int], str]:
        """PENDING, SENT, or what it is parked as, for each (row id, destination number)."""
        ...

    def receipts(self) -> dict[tuple[int, int], StoredReceipt]:
        """The receipts by (row id, destination number)."""
        ...

    def parked(self) -> dict[tuple[int, int], tuple[str, int, str]]:
        """State, attempts and error of parked rows by (row id, destination number)."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Make leases, registrations and due times older by so much; waiting is a way, too."""
        ...

    def lose_event(self, number: int) -> None:
        """Delete the event with this row id, but not its work rows."""
        ...

    def lose_work(self, key: WorkKey) -> None:
        """Delete a ready row by hand."""
        ...

    def ready_again(self, delivery: Delivery) -> None:
        """Put the work row of a sent delivery back, as an operator's hand might."""
        ...

    def edit_partition(self, number: int, **columns: int) -> None:
        """Write low_id, handed_to, careful_to or crashes of a partition by hand."""
        ...

    def lease_for(self, number: int, seconds: float) -> None:
        """Write by hand that a partition is leased for so long."""
        ...

    def empty_partitions(self) -> None:
        """Delete all rows of the partition table."""
        ...

    def set_mode(self, stream: Stream, mode: str) -> None:
        """What an operator does: another mode for a hold."""
        ...

    def broken_receipts(self) -> AbstractContextManager[None]:
        """Inside the block, writing a receipt fails."""
        ...

    def register_row_relay(self, seconds: float) -> None:
        """A relay of the row lease lives for so long."""
        ...


@dataclass(slots=True)
class OrderedWorld:
    """One test's outbox."""

    under_test: OrderedUnderTest

    def add(self, count: int = 1, **changes: Any) -> list[int]:
        """Commit ``count`` events with keys of their own."""
        return self.under_test.add([event(**({"key": f"key-{n}"} | changes)) for n in range(count)])

    def relay(self, relay_id: str = "a", *, lease: float = 60.0) -> Owner:
        """A relay that has entered."""
        store = self.under_test.ordered_store(relay_id, lease=lease)
        store.enter(lease)
        return Owner(store, lease)

    def states(self) -> list[str]:
        """The states of all deliveries, by row id and destination."""
        found = self.under_test.states()
        return [found[place] for place in sorted(found)]


class Owner:
    """A relay's view: its store, and what it owns."""

    def __init__(self, store: OrderedStore, lease: float) -> None:
        self.store = store
        self.lease = lease
        self.owned: dict[int, Partition] = {}

    def acquire(self, numbers: Sequence[int] = range(PARTITIONS)) -> list[Partition]:
        """Take what is free."""
        found = list(self.store.acquire(list(numbers)))
        self.owned.update((one.tenure.partition_no, one) for one in found)
        return found

    def tenure(self, number: int) -> Tenure:
        """Of a partition that was acquired."""
        return self.owned[number].tenure

    @property
    def tenures(self) -> list[Tenure]:
        """Of all that was acquired."""
        return [one.tenure for one in self.owned.values()]

    def read(self, *, held: Collection[int] = ()) -> list[Delivery]:
        """Read all that is ready in the partitions owned; a store may need several readings for that."""
        after = dict.fromkeys(sorted(self.owned), 0)
        found: list[Delivery] = []
        more = True
        while more:
            reading = self.store.read([Span(*one) for one in after.items()], 10_000, 10**8, held)
            found += reading.deliveries
            after.update((one.key.partition_no, one.key.id) for one in reading.deliveries)
            more = reading.more and bool(reading.deliveries)
        return found

    def progress(self, numbers: Collection[int], low_id: int = 0, handed_to: int = 0) -> list[Progress]:
        """For these partitions."""
        return [Progress(self.tenure(number), low_id, handed_to, 0, 0) for number in sorted(set(numbers))]

    def settle(
        self,
        *,
        sent: Sequence[Delivery] = (),
        aside: Sequence[Aside] = (),
        sent_parked: Sequence[Delivery] = (),
        aside_parked: Sequence[Aside] = (),
        holds: Sequence[Hold] = (),
        freed: Sequence[Stream] = (),
    ) -> OrderedSettled:
        """Settle; confirmed ones at partition 1 and offsets equal to their row ids."""
        return self.store.settle(
            self.settlement(
                sent=sent, aside=aside, sent_parked=sent_parked, aside_parked=aside_parked, holds=holds, freed=freed
            )
        )

    def settlement(
        self,
        *,
        sent: Sequence[Delivery] = (),
        aside: Sequence[Aside] = (),
        sent_parked: Sequence[Delivery] = (),
        aside_parked: Sequence[Aside] = (),
        holds: Sequence[Hold] = (),
        freed: Sequence[Stream] = (),
    ) -> OrderedSettlement:
        """With the progress of all partitions that it names."""
        keys = [one.key for one in (*sent, *sent_parked)] + [one.key for one in (*aside, *aside_parked)]
        numbers = {key.partition_no for key in keys}
        numbers |= {one.stream.partition_no for one in holds} | {one.partition_no for one in freed}
        return OrderedSettlement(
            self.progress(numbers),
            [Sent(one.key, 1, one.key.id) for one in sent],
            aside,
            [SentParked(one.key, one.lane, 1, one.key.id) for one in sent_parked],
            aside_parked,
            holds,
            freed,
        )


def stream_of(delivery: Delivery) -> Stream:
    """What the delivery must stay in order with."""
    return Stream(delivery.key.partition_no, delivery.lane, lane_of(delivery.message.destination))


def set_aside(
    delivery: Delivery, state: Literal["RETRY", "HELD", "DEAD"], due_in: float | None = None, error: str = "no"
) -> Aside:
    """One more failed attempt, or a later event of a stream that is held."""
    return Aside(delivery.key, stream_of(delivery), state, due_in, delivery.attempts + (state != "HELD"), error)


def hold_on(
    delivery: Delivery,
    mode: Literal["backoff", "dead", "away", "drain"],
    due_in: float | None = None,
    lane: int | None = None,
) -> Hold:
    """A hold with this delivery as its head; ``lane`` for another one than its own."""
    stream = stream_of(delivery)
    stream = stream if lane is None else stream._replace(lane=lane)
    return Hold(stream, mode, delivery.key.id, due_in, delivery.message.destination, "it failed")
