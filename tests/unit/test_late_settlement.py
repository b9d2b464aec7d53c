"""A settlement that is repeated because its answer was lost, after an operator has acted on what it wrote."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pytest

from pillarbox.event.message import Message
from pillarbox.policy.lanes import lane_of
from pillarbox.ports import Aside, Hold, OrderedSettlement, OrderedStore, Progress, Span, Stream
from pillarbox.store import write
from pillarbox.store.engines import relay_engine
from pillarbox.store.install import install
from pillarbox.store.memory_ordered import MemoryPartitionStore
from pillarbox.store.memory_outbox import MemoryOutbox
from pillarbox.store.ordered import PartitionStore
from pillarbox.store.replay import replay

HEAD = Message("e-1", "t", 1, None, None, "k", datetime(2026, 1, 1, tzinfo=UTC), None, "x/y", b"x", "orders", None)


class Place(Protocol):
    """An outbox with the event HEAD in it."""

    store: OrderedStore

    def replay(self) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self._outbox = MemoryOutbox()
        self._outbox.add([HEAD])
        self.store: OrderedStore = MemoryPartitionStore(self._outbox, relay_id="a")

    def replay(self) -> None:
        self._outbox.replay(1)


class OnSqlite:
    def __init__(self, path: Path) -> None:
        self.engine = relay_engine(f"sqlite:///{path / 'outbox.db'}")
        install(self.engine, ["outbox"])
        with self.engine.begin() as connection:
            write.insert(connection, [write.row_of(HEAD)])
        self.store: OrderedStore = PartitionStore(self.engine, relay_id="a", lease=60.0)

    def replay(self) -> None:
        with self.engine.begin() as connection:
            assert replay(connection, ["e-1"], by="test", reason="test") == 1


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield InMemory()
        return
    on_sqlite = OnSqlite(tmp_path)
    yield on_sqlite
    on_sqlite.engine.dispose()


def test_it_does_not_hold_again_what_was_replayed_since(place: Place) -> None:
    """Else the key would wait for ever, for a head that nobody has given up."""
    store = place.store
    store.enter(60.0)
    partitions = store.acquire(list(range(16)))
    tenures = {one.tenure.partition_no: one.tenure for one in partitions}
    (head,) = store.read([Span(number, 0) for number in tenures], 10, 1_000, ()).deliveries
    stream = Stream(head.key.partition_no, head.lane, lane_of("orders"))
    settlement = OrderedSettlement(
        [Progress(tenures[head.key.partition_no], 0, 0, 0, 0)],
        aside=[Aside(head.key, stream, "DEAD", None, 1, "never")],
        holds=[Hold(stream, "dead", head.key.id, None, "orders", "never")],
    )
    store.settle(settlement)
    place.replay()

    store.settle(settlement)

    assert [hold.mode for hold in store.holds([stream.partition_no], drain_only=False)] == ["drain"]
    assert [one.key for one in store.read_parked(stream, None, 10, 1_000).deliveries] == [head.key]
