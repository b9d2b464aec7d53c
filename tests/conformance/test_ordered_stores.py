"""The contract of the partition lease's store, in memory and on every database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest

from pillarbox.errors import DatabaseUnavailable
from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from pillarbox.ports import Delivery, Stream, WorkKey
from pillarbox.store.memory_ordered import MemoryPartitionStore
from pillarbox.store.memory_outbox import MemoryOutbox, MemoryTransaction, ReadyRow, RelayRow
from pillarbox.testing.clock import FakeClock
from pillarbox.testing.conformance.ordered_store import OrderedStoreConformance
from pillarbox.testing.conformance.ordered_store_world import OrderedCapabilities
from pillarbox.testing.conformance.store_world import StoredReceipt
from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_ordered import OrderedOutbox


class InMemory:
    """The executable specification. Implements OrderedUnderTest."""

    capabilities = OrderedCapabilities(can_break=False)

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.outbox = MemoryOutbox(self.clock)
        self.tables = self.outbox.tables

    def ordered_store(self, relay_id: str, *, lease: float = 60.0) -> MemoryPartitionStore:
        return MemoryPartitionStore(self.outbox, relay_id=relay_id, lease=lease)

    def add(self, messages: Sequence[Message], more: Sequence[Destination] = ()) -> list[int]:
        return self.outbox.add(messages, more)

    def schedule(self, message: Message, seconds: float) -> int:
        return self.outbox.add([message], available_in=seconds)[0]

    def begin(self) -> MemoryTransaction:
        return self.outbox.begin()

    def states(self) -> dict[tuple[int, int], str]:
        return self.outbox.states()

    def receipts(self) -> dict[tuple[int, int], StoredReceipt]:
        return {place: StoredReceipt(*found) for place, found in self.outbox.receipts().items()}

    def parked(self) -> dict[tuple[int, int], tuple[str, int, str]]:
        return self.outbox.parked()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def lose_event(self, number: int) -> None:
        self.outbox.forget_event(number)

    def lose_work(self, key: WorkKey) -> None:
        del self.tables.ready[key]

    def ready_again(self, delivery: Delivery) -> None:
        self.tables.ready[delivery.key] = ReadyRow(delivery.lane)

    def edit_partition(self, number: int, **columns: int) -> None:
        for name, value in columns.items():
            setattr(self.tables.partitions[number], name, value)

    def lease_for(self, number: int, seconds: float) -> None:
        self.tables.partitions[number].leased_until = self.clock.now() + timedelta(seconds=seconds)

    def empty_partitions(self) -> None:
        self.tables.partitions.clear()

    def set_mode(self, stream: Stream, mode: str) -> None:
        self.tables.holds[stream].mode, self.tables.holds[stream].due_at = mode, None  # type: ignore[assignment]

    @contextmanager
    def broken_receipts(self) -> Iterator[None]:
        raise DatabaseUnavailable("not in memory")
        yield

    def register_row_relay(self, seconds: float) -> None:
        self.tables.relays["row-relay"] = RelayRow(self.clock.now() + timedelta(seconds=seconds), "row")


class TestMemoryStore(OrderedStoreConformance):
    @pytest.fixture
    def under_test(self) -> InMemory:
        return InMemory()


class TestSqliteStore(OrderedStoreConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrderedOutbox]:
        outbox = OrderedOutbox(f"sqlite:///{tmp_path_factory.mktemp('ordered') / 'outbox.db'}")
        yield outbox
        outbox.close()

    @pytest.fixture
    def under_test(self, shared: OrderedOutbox) -> OrderedOutbox:
        shared.empty()
        return shared


@pytest.mark.services
class TestServerStore(OrderedStoreConformance):
    """One database for each server, emptied before each test."""

    @pytest.fixture(scope="class", params=DATABASES)
    @classmethod
    def shared(cls, request: pytest.FixtureRequest) -> Iterator[OrderedOutbox]:
        with fresh_database(_need(request, request.param).url) as url:
            outbox = OrderedOutbox(url)
            yield outbox
            outbox.close()

    @pytest.fixture
    def under_test(self, shared: OrderedOutbox) -> OrderedOutbox:
        shared.empty()
        return shared
