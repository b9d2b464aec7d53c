"""The executable specification of the partition lease's store."""

from datetime import UTC, datetime
from typing import Literal

import pytest

from pillarbox.errors import DatabaseUnavailable, LeaseMismatch
from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from pillarbox.policy.lanes import lane_of
from pillarbox.ports import (
    EVERY_LANE,
    Aside,
    Delivery,
    Hold,
    OrderedSettlement,
    OrderedStore,
    Partition,
    Progress,
    Sent,
    SentParked,
    Span,
    Stream,
    Tenure,
)
from pillarbox.store.memory_ordered import MemoryPartitionStore
from pillarbox.store.memory_outbox import MemoryOutbox, RelayRow
from pillarbox.testing.clock import FakeClock

MADE = datetime(2026, 1, 1, tzinfo=UTC)


def message(number: int, key: str = "k", destination: str = "orders", payload: bytes = b"x") -> Message:
    return Message(f"e-{number}", "t", 1, None, None, key, MADE, None, "text/plain", payload, destination, None)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def outbox(clock: FakeClock) -> MemoryOutbox:
    return MemoryOutbox(clock, partitions=1)


def entered(outbox: MemoryOutbox, relay_id: str = "a", lease: float = 10.0) -> MemoryPartitionStore:
    store = MemoryPartitionStore(outbox, relay_id=relay_id, lease=lease)
    store.enter(lease)
    return store


def acquired(store: MemoryPartitionStore) -> Partition:
    (partition,) = store.acquire([0])
    return partition


def going_on(tenure: Tenure, low_id: int = 0, handed_to: int = 0) -> Progress:
    return Progress(tenure, low_id, handed_to, 0, 0)


def aside(delivery: Delivery, state: Literal["RETRY", "HELD", "DEAD"], due_in: float | None = None) -> Aside:
    return Aside(delivery.key, stream_of(delivery), state, due_in, 1, "no")


def stream_of(delivery: Delivery) -> Stream:
    return Stream(delivery.key.partition_no, delivery.lane, lane_of(delivery.message.destination))


def read(store: MemoryPartitionStore, after: int = 0, limit: int = 100) -> list[Delivery]:
    return list(store.read([Span(0, after)], limit, 10**9, ()).deliveries)


def test_it_is_an_ordered_store(outbox: MemoryOutbox) -> None:
    store: OrderedStore = entered(outbox)
    assert store.fleet().relays == ["a"]


def test_a_partition_has_one_owner_until_its_lease_ends_and_the_old_one_settles_nothing_then(
    outbox: MemoryOutbox, clock: FakeClock
) -> None:
    outbox.add([message(1)])
    first, second = entered(outbox), entered(outbox, "b")
    old = acquired(first).tenure
    (delivery,) = read(first)
    assert second.acquire([0]) == []
    clock.advance(10)
    acquired(second)

    settled = first.settle(OrderedSettlement([going_on(old)], sent=[Sent(delivery.key, 0, 0)]))

    assert (settled.sent, settled.lost) == (0, (old,))
    assert outbox.states() == {(1, 0): "PENDING"}
    assert first.stay(10, [old]) == [old]


def test_renewal_and_settlement_both_prolong_the_lease(outbox: MemoryOutbox, clock: FakeClock) -> None:
    first, second = entered(outbox), entered(outbox, "b")
    tenure = acquired(first).tenure
    clock.advance(9)
    assert first.stay(10, [tenure]) == []
    clock.advance(9)
    assert first.settle(OrderedSettlement([going_on(tenure)])).lost == ()
    clock.advance(9)
    assert second.acquire([0]) == []
    (state,) = second.fleet().partitions
    assert (state.owner, state.free, state.free_in) == ("a", False, 1.0)


def test_a_released_partition_is_free_at_once_and_no_crash(outbox: MemoryOutbox) -> None:
    outbox.add([message(1)])
    first, second = entered(outbox), entered(outbox, "b")
    first.release([going_on(acquired(first).tenure, handed_to=1)])
    found = acquired(second)
    assert (found.careful_to, found.crashes) == (0, 0)


def test_a_crash_is_counted_when_something_was_on_its_way(outbox: MemoryOutbox, clock: FakeClock) -> None:
    outbox.add([message(1), message(2)])
    first, second = entered(outbox), entered(outbox, "b")
    first.settle(OrderedSettlement([going_on(acquired(first).tenure, handed_to=1_000)]))
    clock.advance(10)
    found = acquired(second)
    assert (found.careful_to, found.crashes) == (2, 1), "bounded by the highest id there is"
    clock.advance(10)
    assert acquired(entered(outbox, "c")).crashes == 1, "nothing was on its way this time"


def test_an_impossible_lease_is_free(outbox: MemoryOutbox) -> None:
    acquired(entered(outbox))
    outbox.tables.partitions[0].leased_until = datetime(2100, 1, 1, tzinfo=UTC)
    acquired(entered(outbox, "b"))


def test_reading_is_by_id_and_sees_committed_rows_only(outbox: MemoryOutbox) -> None:
    store = entered(outbox)
    acquired(store)
    late, other = outbox.begin(), outbox.begin()
    assert late.add([message(1)]) == [1]
    outbox.add([message(2)])
    other.add([message(3)])
    assert len(store.writers() or ()) == 2
    assert [one.key.id for one in read(store)] == [2]
    late.commit()
    other.rollback()
    assert [one.key.id for one in read(store)] == [1, 2]
    assert store.stragglers([Span(0, 1)]) == [0]
    assert store.writers() == frozenset()


def test_reading_stops_at_the_bytes_but_after_at_least_one_row(outbox: MemoryOutbox) -> None:
    outbox.add([message(1, payload=b"x" * 10), message(2, payload=b"x" * 10), message(3, payload=b"x" * 10)])
    store = entered(outbox)
    acquired(store)
    found = store.read([Span(0, 0)], 10, 25, ())
    assert ([one.key.id for one in found.deliveries], found.more) == ([1, 2], True)
    assert len(store.read([Span(0, 0)], 10, 1, ()).deliveries) == 1
    held = store.read([Span(0, 1)], 10, 1, [lane_of("k")])
    assert ([one.message.payload for one in held.deliveries], held.more) == ([b"", b""], False)


def test_who_lost_the_partition_reads_nothing_for_it_knows_old_holds(outbox: MemoryOutbox, clock: FakeClock) -> None:
    outbox.add([message(1), message(2)])
    first, second = entered(outbox), entered(outbox, "b")
    acquired(first)
    clock.advance(10)
    tenure = acquired(second).tenure
    head, later = read(second)
    held = OrderedSettlement(
        [going_on(tenure)],
        aside=[aside(head, "DEAD"), aside(later, "HELD")],
        holds=[Hold(stream_of(head), "dead", 1, None, "orders", "no")],
    )
    second.settle(held)
    outbox.add([message(3)])

    assert read(first) == []
    assert first.read_parked(stream_of(head), None, 10, 1_000).deliveries == []
    assert [one.key.id for one in read(second)] == [3]


def test_an_orphan_is_read_as_one(outbox: MemoryOutbox) -> None:
    outbox.add([message(1)])
    outbox.forget_event(1)
    store = entered(outbox)
    acquired(store)
    found = store.read([Span(0, 0)], 10, 1_000, ())
    assert (found.deliveries, [one.key.id for one in found.orphans]) == ([], [1])


def test_a_settlement_whose_answer_was_lost_recognises_its_own_traces(outbox: MemoryOutbox) -> None:
    outbox.add([message(1), message(2)])
    store = entered(outbox)
    tenure = acquired(store).tenure
    first, second = read(store)
    settlement = OrderedSettlement(
        [going_on(tenure)], sent=[Sent(first.key, 0, 7)], aside=[aside(second, "RETRY", due_in=1)]
    )

    def lose_the_answer(name: str, when: str) -> None:
        if when == "after":
            raise DatabaseUnavailable(name)

    store.fault = lose_the_answer
    with pytest.raises(DatabaseUnavailable):
        store.settle(settlement)
    store.fault = None
    again = store.settle(settlement)

    assert (again.sent, again.aside, again.vanished) == (1, 1, ())
    assert outbox.states() == {(1, 0): "SENT", (2, 0): "RETRY"}


def test_a_row_that_somebody_removed_has_its_receipt_and_is_reported(outbox: MemoryOutbox) -> None:
    outbox.add([message(1)])
    store = entered(outbox)
    tenure = acquired(store).tenure
    (delivery,) = read(store)
    outbox.tables.ready.clear()
    settled = store.settle(OrderedSettlement([going_on(tenure)], sent=[Sent(delivery.key, 0, 0)]))
    assert (settled.sent, settled.vanished) == (0, (delivery.key,))
    assert outbox.states() == {(1, 0): "SENT"}


def test_what_waits_behind_a_head_is_read_in_order_and_the_hold_stays_until_all_is_gone(outbox: MemoryOutbox) -> None:
    outbox.add([message(n) for n in (1, 2, 3)])
    store = entered(outbox)
    tenure = acquired(store).tenure
    head, second, third = read(store)
    stream = stream_of(head)
    hold = Hold(stream, "backoff", 1, 5.0, "orders", "no")
    store.settle(
        OrderedSettlement(
            [going_on(tenure)],
            aside=[aside(head, "RETRY", due_in=5), aside(second, "HELD"), aside(third, "HELD")],
            holds=[hold],
        )
    )
    assert (read(store), store.holds([0], drain_only=False)) == ([], [hold])

    found = store.read_parked(stream, None, 2, 1_000)
    assert ([one.key.id for one in found.deliveries], found.more) == ([1, 2], True)
    gone = [SentParked(one.key, one.lane, 0, 0) for one in found.deliveries]
    settled = store.settle(OrderedSettlement([going_on(tenure)], sent_parked=gone, freed=[stream]))
    assert (settled.sent, settled.kept) == (2, (stream,))

    rest = store.read_parked(stream, found.deliveries[-1].key, 2, 1_000).deliveries
    assert [one.key.id for one in rest] == [3]
    gone = [SentParked(rest[0].key, rest[0].lane, 0, 0)]
    assert store.settle(OrderedSettlement([going_on(tenure)], sent_parked=gone, freed=[stream])).kept == ()
    assert store.holds([0], drain_only=False) == []


def test_the_hold_of_a_destination_covers_all_lanes_without_one_of_their_own(outbox: MemoryOutbox) -> None:
    outbox.add([message(1, "a"), message(2, "b"), message(3, "c"), message(4, "a")])
    store = entered(outbox)
    tenure = acquired(store).tenure
    rows = read(store)
    whole = Stream(0, EVERY_LANE, lane_of("orders"))
    own = stream_of(rows[1])
    holds = [Hold(whole, "away", 1, 1.0, "orders", "down"), Hold(own, "dead", 2, None, "orders", "no")]
    store.settle(OrderedSettlement([going_on(tenure)], aside=[aside(one, "HELD") for one in rows], holds=holds))

    found = store.read_parked(whole, None, 2, 1_000).deliveries
    rest = store.read_parked(whole, found[-1].key, 2, 1_000).deliveries

    got = [(one.lane, one.key.id) for one in [*found, *rest]]
    assert got == sorted((one.lane, one.key.id) for one in rows if one is not rows[1])


def test_due_rows_come_back_below_the_low_mark_unless_something_holds_them(
    outbox: MemoryOutbox, clock: FakeClock
) -> None:
    outbox.add([message(1, "a"), message(2, "b"), message(3, "c")])
    outbox.add([message(4, "d")], available_in=5)
    store = entered(outbox)
    tenure = acquired(store).tenure
    one, two, three = read(store)
    store.settle(
        OrderedSettlement(
            [going_on(tenure, low_id=3)],
            aside=[aside(one, "RETRY", due_in=5), aside(two, "RETRY", due_in=5), aside(three, "DEAD")],
            holds=[Hold(stream_of(one), "backoff", 1, 5.0, "orders", "no")],
        )
    )
    assert store.move_due([tenure], 10) == {}
    clock.advance(5)
    assert store.signs([Span(0, 3)])[:3] == (False, True, False)
    assert store.move_due([tenure._replace(nonce=-1)], 10) == {}
    assert store.move_due([tenure], 10) == {0: 2}
    assert outbox.states() == {(1, 0): "RETRY", (2, 0): "PENDING", (3, 0): "DEAD", (4, 0): "PENDING"}
    assert outbox.tables.partitions[0].low_id == 1


def test_a_suspect_is_charged_until_an_outcome_is_settled(outbox: MemoryOutbox) -> None:
    outbox.add([message(1)])
    store = entered(outbox)
    tenure = acquired(store).tenure
    (delivery,) = read(store)
    assert [store.charge(tenure, delivery.key, parked=False) for _ in range(2)] == [1, 2]
    assert store.charge(tenure._replace(nonce=-1), delivery.key, parked=False) == 0
    store.settle(OrderedSettlement([going_on(tenure)], aside=[aside(delivery, "RETRY", due_in=0)]))
    assert store.charge(tenure, delivery.key, parked=True) == 1


def test_an_operator_lets_a_stream_drain(outbox: MemoryOutbox) -> None:
    outbox.add([message(1), message(2)])
    store = entered(outbox)
    tenure = acquired(store).tenure
    head, second = read(store)
    hold = Hold(stream_of(head), "dead", 1, None, "orders", "no")
    store.settle(
        OrderedSettlement([going_on(tenure)], aside=[aside(head, "DEAD"), aside(second, "HELD")], holds=[hold])
    )
    assert store.holds([0], drain_only=True) == []
    outbox.replay(1)
    assert store.signs([Span(0, 2)]).drain
    (now,) = store.holds([0], drain_only=True)
    assert [one.key.id for one in store.read_parked(now.stream, None, 10, 1_000).deliveries] == [1, 2]


def test_an_event_has_a_row_for_each_destination(outbox: MemoryOutbox) -> None:
    outbox.add([message(1)], [Destination("audit", None)])
    store = entered(outbox)
    acquired(store)
    assert [(one.key.dest, one.message.destination) for one in read(store)] == [(0, "orders"), (1, "audit")]


def test_relays_of_the_other_kind_are_refused_while_they_live(outbox: MemoryOutbox, clock: FakeClock) -> None:
    outbox.tables.relays["old"] = RelayRow(clock.now().replace(year=2027), "row")
    with pytest.raises(LeaseMismatch, match="old"):
        entered(outbox)
