"""The partition lease's contract, second part: what is read, in which order, and what a look finds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ...event.destination import Destination
from ...policy.lanes import lane_of, partition_of
from ...ports import EVERY_LANE, Span
from .ordered_store_world import OrderedWorld, hold_on, set_aside, stream_of
from .store_world import event, needs


class OrderedReadingConformance:
    """Reading and looking."""

    def test_rows_come_in_order_of_partition_and_id_with_all_that_belongs_to_them(self, world: OrderedWorld) -> None:
        messages = [event(key=f"key-{n % 7}", headers='{"a":"ü☃"}', routing_key="r") for n in range(60)]
        messages.append(event(key=None, aggregate_type=None, aggregate_id=None, payload=b"\x00\xff\xfe\xff"))
        numbers = world.under_test.add(messages, [Destination("more", "there"), Destination("ünï")])
        relay = world.relay()
        relay.acquire()
        found = relay.read()
        assert [one.key for one in found] == sorted(one.key for one in found)
        assert len(found) == 61 * 3
        by_place = {(one.key.id, one.key.dest): one for one in found}
        for number, message in zip(numbers, messages, strict=True):
            lane = lane_of(message.event_id if message.key is None else message.key)
            for dest, place in enumerate(
                [(message.destination, message.routing_key), ("more", "there"), ("ünï", None)]
            ):
                one = by_place[number, dest]
                assert one.message == message._replace(destination=place[0], routing_key=place[1])
                assert (one.lane, one.key.partition_no, one.attempts, one.claims) == (lane, partition_of(lane), 0, 0)

    def test_only_rows_above_the_span_s_mark_are_read(self, world: OrderedWorld) -> None:
        numbers = world.add(5, key="k")
        number = partition_of(lane_of("k"))
        relay = world.relay()
        relay.acquire()
        reading = relay.store.read([Span(number, numbers[1])], 2, 10**6, ())
        assert [one.key.id for one in reading.deliveries] == numbers[2:4]
        assert reading.more
        rest = relay.store.read([Span(number, numbers[3])], 2, 10**6, ())
        assert ([one.key.id for one in rest.deliveries], rest.more) == (numbers[4:], False)
        assert relay.store.read([], 10, 10**6, ()).deliveries in ([], ())

    def test_the_budget_ends_a_reading_after_at_least_one_event(self, world: OrderedWorld) -> None:
        sizes = [10, 40_000, 30, 2_000_000, 50, 16_384, 16_385]
        world.under_test.add([event(key="k", payload=b"x" * size) for size in sizes])
        relay = world.relay()
        relay.acquire()
        found: list[int] = []
        after = 0
        for _ in range(20):
            reading = relay.store.read([Span(partition_of(lane_of("k")), after)], 100, 50_000, ())
            got = [len(one.message.payload) for one in reading.deliveries]
            assert sum(got) <= 50_000 or len(got) <= 1
            found += got
            if not reading.more or not got:
                break
            after = reading.deliveries[-1].key.id
        assert found == sizes

    def test_a_relay_that_lost_a_partition_reads_nothing_of_it(self, world: OrderedWorld) -> None:
        """C018: it was stalled, and does not know which keys wait by now."""
        world.under_test.add([event(key="k") for _ in range(3)])
        stalled, other = world.relay("a"), world.relay("b")
        stalled.acquire()
        found = stalled.read()
        stalled.settle(aside=[set_aside(found[0], "RETRY", 0.0)], holds=[hold_on(found[0], "backoff", 0.0)])
        assert [one.key for one in stalled.read()] == [one.key for one in found[1:]]
        stream = stream_of(found[0])
        assert len(stalled.store.read_parked(stream, None, 9, 10**6).deliveries) == 1
        world.under_test.pass_time(61)
        other.acquire([stream.partition_no])
        assert stalled.read() == []
        assert list(stalled.store.read_parked(stream, None, 9, 10**6).deliveries) == []
        assert [one.key for one in other.read()] == [one.key for one in found[1:]]

    def test_lanes_that_are_held_come_without_payload(self, world: OrderedWorld) -> None:
        world.under_test.add([event(key=key, payload=b"x" * size) for key in "ab" for size in (5, 50_000)])
        relay = world.relay()
        relay.acquire()
        found = relay.read(held=[lane_of("a")])
        sizes = {(one.message.key, len(one.message.payload)) for one in found}
        assert sizes == {("a", 0), ("b", 5), ("b", 50_000)}

    def test_a_row_without_its_event_is_an_orphan(self, world: OrderedWorld) -> None:
        first, lost, last = world.add(3, key="k")
        world.under_test.lose_event(lost)
        relay = world.relay()
        relay.acquire()
        reading = relay.store.read([Span(partition_of(lane_of("k")), 0)], 10, 10**6, ())
        assert [one.key.id for one in reading.deliveries] == [first, last]
        assert [(one.key.id, one.lane) for one in reading.orphans] == [(lost, lane_of("k"))]

    def test_a_late_commit_is_read_with_what_was_committed_before_it(self, world: OrderedWorld) -> None:
        """C012, C014: the trap. 7 is read, then 5 and 8 of another key commit: 8 is never seen without 5."""
        needs(world.under_test.capabilities.sees_open_writers, "sees_open_writers")
        relay = world.relay()
        relay.acquire()
        writer = world.under_test.begin()
        (five,) = writer.add([event(key="k")])
        (seven,) = world.add(1, key="other")
        assert [one.key.id for one in relay.read()] == [seven]
        writer.commit()
        (eight,) = world.add(1, key="k")
        assert [one.key.id for one in relay.read() if one.message.key == "k"] == [five, eight]

    def test_open_writers_are_known_by_names_that_go_when_they_end(self, world: OrderedWorld) -> None:
        needs(world.under_test.capabilities.sees_open_writers, "sees_open_writers")
        relay = world.relay()
        relay.acquire()
        if relay.store.writers() is None:
            pytest.skip("this database does not tell")
        for end in ("commit", "rollback"):
            others = relay.store.writers() or frozenset()  # of whoever else works on this server
            named: frozenset[str] = frozenset()
            while not named:  # a name may stand for several: until ours stands for no older one
                writer = world.under_test.begin()
                writer.add([event()])
                named = _eventually(lambda: relay.store.writers(), bool) - others
                if not named:
                    writer.rollback()
            getattr(writer, end)()
            _eventually(lambda: relay.store.writers(), named.isdisjoint)

    def test_a_look_tells_what_there_is_to_do(self, world: OrderedWorld) -> None:
        relay = world.relay()
        relay.acquire()
        spans = [Span(number, 0) for number in range(16)]
        assert relay.store.signs(spans) == (False, False, False, 1)
        later = world.add(2, key="k")[1]
        assert relay.store.signs(spans).ready
        assert not relay.store.signs([Span(number, later) for number in range(16)]).ready
        first, second = relay.read()
        relay.settle(
            aside=[set_aside(first, "RETRY", 30.0), set_aside(second, "HELD")], holds=[hold_on(first, "backoff", 30.0)]
        )
        assert relay.store.signs(spans) == (False, False, False, 1)
        world.under_test.set_mode(stream_of(first), "drain")
        assert relay.store.signs(spans) == (False, False, True, 1)
        world.relay("b")
        assert relay.store.signs(spans).relays == 2

    def test_a_due_row_shows_unless_it_is_held(self, world: OrderedWorld) -> None:
        relay = world.relay()
        relay.acquire()
        world.add(2)
        spans = [Span(number, 0) for number in range(16)]
        free, held = relay.read()
        relay.settle(
            aside=[set_aside(free, "RETRY", 30.0), set_aside(held, "RETRY", 30.0)],
            holds=[hold_on(held, "backoff", 30.0)],
        )
        assert not relay.store.signs(spans).due
        world.under_test.pass_time(31)
        assert relay.store.signs(spans).due
        assert not relay.store.signs([Span(held.key.partition_no, 0)]).due or (
            held.key.partition_no == free.key.partition_no
        )

    def test_stragglers_are_found_below_the_mark_only(self, world: OrderedWorld) -> None:
        numbers = world.add(2, key="k")
        number = partition_of(lane_of("k"))
        relay = world.relay()
        relay.acquire()
        marks = [Span(n, numbers[0] - (n == number)) for n in range(16)]
        assert list(relay.store.stragglers(marks)) == []
        assert list(relay.store.stragglers([Span(n, numbers[0]) for n in range(16)])) == [number]
        assert list(relay.store.stragglers([])) == []

    # Due rows ---------------------------------------------------------------------------------------------------------

    def test_due_rows_move_to_the_queue_with_their_counters_and_lower_the_mark(self, world: OrderedWorld) -> None:
        first, second = world.add(2, key="k")
        relay = world.relay()
        relay.acquire()
        deliveries = relay.read()
        relay.settle(aside=[set_aside(deliveries[0], "RETRY", 30.0), set_aside(deliveries[1], "DEAD")])
        number = deliveries[0].key.partition_no
        world.under_test.edit_partition(number, low_id=second)
        assert dict(relay.store.move_due(relay.tenures, 10)) == {}
        world.under_test.pass_time(31)
        assert dict(relay.store.move_due([], 10)) == {}
        assert dict(relay.store.move_due(relay.tenures, 10)) == {number: first}
        (again,) = relay.read()
        assert (again.key, again.attempts) == (deliveries[0].key, 1)
        relay.store.release(relay.progress([n for n in range(16) if n != number]))
        world.under_test.pass_time(61)
        other = world.relay("b")
        assert other.acquire([number])[0].low_id == first - 1

    def test_scheduled_rows_move_when_their_time_has_come(self, world: OrderedWorld) -> None:
        number = world.under_test.schedule(event(key="k"), 600.0)
        relay = world.relay()
        relay.acquire()
        assert (relay.read(), dict(relay.store.move_due(relay.tenures, 10))) == ([], {})
        world.under_test.pass_time(601)
        assert list(relay.store.move_due(relay.tenures, 10).values()) == [number]
        assert [one.key.id for one in relay.read()] == [number]

    def test_due_rows_stay_under_a_hold_and_with_a_stale_tenure(self, world: OrderedWorld) -> None:
        world.add(1, key="k")
        relay, other = world.relay("a"), world.relay("b")
        relay.acquire()
        (head,) = relay.read()
        relay.settle(aside=[set_aside(head, "RETRY", 1.0)], holds=[hold_on(head, "backoff", 1.0)])
        world.under_test.pass_time(2)
        assert dict(relay.store.move_due(relay.tenures, 10)) == {}
        relay.settle(holds=[hold_on(head, "away", 1.0, EVERY_LANE)])
        assert list(relay.settle(freed=[stream_of(head)]).kept) == [stream_of(head)]
        world.under_test.pass_time(61)
        other.acquire()
        assert dict(relay.store.move_due(relay.tenures, 10)) == {}

    def test_a_limited_move_takes_the_longest_due_first(self, world: OrderedWorld) -> None:
        world.add(4, key="k")
        relay = world.relay()
        relay.acquire()
        found = relay.read()
        relay.settle(aside=[set_aside(one, "RETRY", 10.0 - n) for n, one in enumerate(found)])
        world.under_test.pass_time(11)
        assert list(relay.store.move_due(relay.tenures, 2).values()) == [found[2].key.id]
        assert [one.key.id for one in relay.read()] == [found[2].key.id, found[3].key.id]

    # Parked rows ------------------------------------------------------------------------------------------------------

    def test_parked_rows_of_a_stream_are_read_by_id_and_onwards(self, world: OrderedWorld) -> None:
        world.under_test.add([event(key="k") for _ in range(5)], [Destination("other")])
        relay = world.relay()
        relay.acquire()
        found = [one for one in relay.read() if one.key.dest == 0]
        others = [one for one in relay.read() if one.key.dest == 1]
        relay.settle(
            aside=[
                set_aside(found[0], "RETRY", 30.0),
                set_aside(found[1], "DEAD"),
                *(set_aside(one, "HELD") for one in [*found[2:], *others]),
            ],
            holds=[hold_on(found[0], "backoff", 30.0)],
        )
        waiting = [found[0], *found[2:]]
        stream = stream_of(found[0])
        reading = relay.store.read_parked(stream, None, 2, 10**6)
        assert [one.key for one in reading.deliveries] == [one.key for one in waiting[:2]]
        assert (reading.deliveries[0].attempts, reading.deliveries[0].message) == (1, found[0].message)
        assert reading.more
        rest = relay.store.read_parked(stream, waiting[1].key, 2, 10**6)
        assert [one.key for one in rest.deliveries] == [one.key for one in waiting[2:]]
        assert list(relay.store.read_parked(stream, waiting[-1].key, 2, 10**6).deliveries) == []

    def test_a_whole_destination_is_read_by_lane_without_those_that_have_a_hold_of_their_own(
        self, world: OrderedWorld
    ) -> None:
        keys = _keys_of_one_partition(4)
        world.under_test.add([event(key=key, destination=where) for key in keys * 2 for where in ("there", "else")])
        relay = world.relay()
        relay.acquire()
        found = relay.read()
        own = next(one for one in found if (one.message.key, one.message.destination) == (keys[0], "there"))
        relay.settle(
            aside=[set_aside(one, "HELD") for one in found],
            holds=[hold_on(own, "away", 5.0, EVERY_LANE), hold_on(own, "dead")],
        )
        expected = sorted(
            (one for one in found if one.message.destination == "there" and one.message.key != keys[0]),
            key=lambda one: (one.lane, one.key),
        )
        stream = stream_of(own)._replace(lane=EVERY_LANE)
        got, after = [], None
        for _ in range(10):
            reading = relay.store.read_parked(stream, after, 4, 10**6)
            if not reading.deliveries:
                break
            got += [one.key for one in reading.deliveries]
            after = got[-1]
            relay.settle(sent_parked=reading.deliveries)  # gone before the next page is asked for
        assert got == [one.key for one in expected]

    def test_holds_are_listed_with_what_an_operator_made_of_them(self, world: OrderedWorld) -> None:
        world.add(2)
        relay = world.relay()
        relay.acquire()
        one, other = relay.read()
        relay.settle(holds=[hold_on(one, "backoff", 30.0), hold_on(other, "dead")])
        found = relay.store.holds(range(16), drain_only=False)
        assert [hold._replace(due_in=None) for hold in found] == sorted(
            [hold_on(one, "backoff"), hold_on(other, "dead")], key=lambda hold: hold.stream
        )
        (backoff,) = [hold for hold in found if hold.mode == "backoff"]
        assert backoff.due_in is not None
        assert 25 < backoff.due_in <= 30
        assert list(relay.store.holds(range(16), drain_only=True)) == []
        world.under_test.set_mode(stream_of(other), "drain")
        assert [hold.stream for hold in relay.store.holds(range(16), drain_only=True)] == [stream_of(other)]
        assert list(relay.store.holds([], drain_only=False)) == []


def _keys_of_one_partition(count: int) -> list[str]:
    keys = (f"key-{n}" for n in range(10_000))
    return [key for key in keys if partition_of(lane_of(key)) == 0][:count]


def _eventually(look: Callable[[], frozenset[str] | None], condition: Callable[[Any], bool]) -> frozenset[str]:
    """MySQL shows a list of transactions that is up to 0.1 s old."""
    deadline = time.monotonic() + 5.0
    while not condition(found := look()):
        assert time.monotonic() < deadline, f"still {found} after 5 s"
        time.sleep(0.02)
    return found or frozenset()
