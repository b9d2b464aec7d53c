"""The store's contract, in memory and on every database."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pillarbox.errors import DatabaseUnavailable
from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from pillarbox.ports import Delivery, WorkKey
from pillarbox.store.memory import MemoryReceipt, MemoryStore
from pillarbox.testing.clock import FakeClock
from pillarbox.testing.conformance.store import StoreConformance
from pillarbox.testing.conformance.store_world import StoreCapabilities, StoredReceipt
from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_outbox import SqlOutbox


class InMemory:
    capabilities = StoreCapabilities()

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.tables = MemoryStore(self.clock)

    def store(self, relay_id: str, *, lease: float = 60.0) -> MemoryStore:
        return self.tables.another(relay_id, lease=lease)

    def add(self, messages: list[Message], more: list[Destination] | tuple[()] = ()) -> list[int]:
        return [self.tables.add(message, more) for message in messages]

    def states(self) -> dict[tuple[int, int], str]:
        return self.tables.states()

    def receipts(self) -> dict[tuple[int, int], StoredReceipt]:
        return {(key.id, key.dest): StoredReceipt(*found) for key, found in self.tables.receipts.items()}

    def parked(self) -> dict[tuple[int, int], tuple[str, int, str]]:
        return {(one.key.id, one.key.dest): (one.state, one.attempts, one.error) for one in self.tables.parked}

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def lose_event(self, number: int) -> None:
        self.tables.forget_event(number)

    def ready_again(self, delivery: Delivery) -> None:
        self.tables.ready_again(delivery)

    @contextmanager
    def broken_receipts(self) -> Iterator[None]:
        whole = self.tables._tables.receipts
        self.tables._tables.receipts = Broken(whole)
        yield
        self.tables._tables.receipts = whole


class Broken(dict[WorkKey, MemoryReceipt]):
    def __setitem__(self, key: WorkKey, value: MemoryReceipt) -> None:
        raise DatabaseUnavailable("the receipts are broken")


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def under_test(self) -> InMemory:
        return InMemory()


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def under_test(self, sqlite_url: str) -> Iterator[SqlOutbox]:
        outbox = SqlOutbox(sqlite_url)
        yield outbox
        outbox.close()


@pytest.mark.services
class TestServerStore(StoreConformance):
    """One database for each server, emptied before each test."""

    @pytest.fixture(scope="class", params=DATABASES)
    @classmethod
    def shared(cls, request: pytest.FixtureRequest) -> Iterator[SqlOutbox]:
        with fresh_database(_need(request, request.param).url) as url:
            outbox = SqlOutbox(url)
            yield outbox
            outbox.close()

    @pytest.fixture
    def under_test(self, shared: SqlOutbox) -> SqlOutbox:
        shared.empty()
        return shared
