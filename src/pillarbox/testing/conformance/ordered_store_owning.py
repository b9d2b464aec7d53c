"""The partition lease's contract, first part: registering, acquiring, renewing, releasing."""

from __future__ import annotations

import threading

import pytest

from ...errors import LeaseMismatch
from ...ports import OrderedSettlement, Progress, Tenure
from .ordered_store_world import PARTITIONS, OrderedWorld, Owner


class OwningConformance:
    """Ownership."""

    def test_living_relays_are_seen_until_they_leave_or_their_time_is_over(self, world: OrderedWorld) -> None:
        first, second = world.relay("b"), world.relay("a")
        assert list(first.store.fleet().relays) == ["a", "b"]
        second.store.leave()
        assert list(first.store.fleet().relays) == ["b"]
        world.under_test.pass_time(61)
        assert list(second.store.fleet().relays) == []
        first.store.stay(60.0, [])
        assert list(second.store.fleet().relays) == ["b"]

    def test_a_partition_has_one_owner(self, world: OrderedWorld) -> None:
        """C018."""
        first, second = world.relay("a"), world.relay("b")
        assert [one.tenure.partition_no for one in first.acquire([3, 1, 2])] == [1, 2, 3]
        assert [one.tenure.partition_no for one in second.acquire([1, 2, 3, 4])] == [4]
        states = first.store.fleet().partitions
        assert [(one.partition_no, one.owner, one.free) for one in states][1:6] == [
            (1, "a", False),
            (2, "a", False),
            (3, "a", False),
            (4, "b", False),
            (5, "", True),
        ]
        assert 58 < states[1].free_in <= 60

    def test_relays_that_acquire_at_the_same_moment_share_without_overlap(self, world: OrderedWorld) -> None:
        """C018."""
        relays = [world.relay(name) for name in "abc"]
        start = threading.Barrier(len(relays))

        def take(relay: Owner) -> None:
            start.wait(10)
            for number in range(PARTITIONS):
                relay.acquire([number])

        threads = [threading.Thread(target=take, args=(relay,)) for relay in relays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        taken = [number for relay in relays for number in relay.owned]
        assert sorted(taken) == list(range(PARTITIONS))

    def test_nobody_takes_a_partition_before_its_lease_ends_and_anybody_then(self, world: OrderedWorld) -> None:
        first, second = world.relay("a", lease=60.0), world.relay("b")
        first.acquire([0])
        world.under_test.pass_time(50)
        assert second.acquire([0]) == []
        world.under_test.pass_time(11)
        (found,) = second.acquire([0])
        assert (found.tenure.token, found.tenure.nonce != first.tenure(0).nonce) == (2, True)

    def test_renewal_prolongs_the_lease_and_names_what_is_lost(self, world: OrderedWorld) -> None:
        first, second = world.relay("a"), world.relay("b")
        first.acquire([0, 1])
        world.under_test.pass_time(50)
        assert list(first.store.stay(60.0, [first.tenure(0)])) == []
        world.under_test.pass_time(50)
        assert [one.tenure.partition_no for one in second.acquire([0, 1])] == [1]
        assert list(first.store.stay(60.0, first.tenures)) == [first.tenure(1)]

    def test_a_lease_that_no_clock_can_have_written_is_over(self, world: OrderedWorld) -> None:
        first, second = world.relay("a"), world.relay("b")
        first.acquire([0])
        world.under_test.lease_for(0, 3_600.0)
        assert second.store.fleet().partitions[0].free
        assert len(second.acquire([0])) == 1

    def test_a_released_partition_is_free_at_once_and_no_crash(self, world: OrderedWorld) -> None:
        """C020."""
        world.add(9)
        first, second = world.relay("a"), world.relay("b")
        first.acquire([0])
        first.store.release([Progress(first.tenure(0), 2, 7, 0, 0)])
        (found,) = second.acquire([0])
        assert (found.low_id, found.careful_to, found.crashes) == (2, 0, 0)

    def test_a_stale_tenure_releases_nothing(self, world: OrderedWorld) -> None:
        first, second = world.relay("a"), world.relay("b")
        first.acquire([0])
        world.under_test.pass_time(61)
        second.acquire([0])
        first.store.release([Progress(first.tenure(0), 99, 0, 0, 0)])
        assert second.store.fleet().partitions[0].owner == "b"
        assert list(second.store.stay(60.0, second.tenures)) == []

    def test_a_crash_with_events_on_their_way_is_counted_and_bounded(self, world: OrderedWorld) -> None:
        numbers = world.add(3)
        first = world.relay("a")
        first.acquire([0])
        for crashes in (1, 2):
            first.store.settle(_moved(first, 0, handed_to=numbers[-1] + 500, crashes=crashes - 1))
            world.under_test.pass_time(61)
            first = world.relay(f"after-{crashes}")
            (found,) = first.acquire([0])
            assert (found.careful_to, found.crashes) == (numbers[-1], crashes)

    def test_a_crash_with_nothing_on_its_way_is_none(self, world: OrderedWorld) -> None:
        world.add(3)
        first, second = world.relay("a"), world.relay("b")
        first.acquire([0])
        world.under_test.pass_time(61)
        (found,) = second.acquire([0])
        assert (found.careful_to, found.crashes) == (0, 0)

    def test_ids_that_are_used_again_after_a_restore_are_read_from_the_start(self, world: OrderedWorld) -> None:
        (number,) = world.add()
        world.under_test.edit_partition(0, low_id=number + 1_000)
        relay = world.relay()
        (found,) = relay.acquire([0])
        assert found.low_id == 0
        world.under_test.edit_partition(1, low_id=number)
        assert relay.acquire([1])[0].low_id == number

    def test_a_partition_table_that_was_emptied_fills_again(self, world: OrderedWorld) -> None:
        relay = world.relay()
        relay.acquire()
        world.under_test.empty_partitions()
        assert len(relay.store.stay(60.0, relay.tenures)) == PARTITIONS
        relay.store.enter(60.0)
        assert len(relay.store.fleet().partitions) == PARTITIONS
        assert len(relay.acquire()) == PARTITIONS

    def test_relays_of_the_other_kind_are_not_worked_beside(self, world: OrderedWorld) -> None:
        world.under_test.register_row_relay(60.0)
        store = world.under_test.ordered_store("a")
        with pytest.raises(LeaseMismatch):
            store.enter(60.0)
        world.under_test.pass_time(61)
        store.enter(60.0)

    def test_taking_no_partition_is_no_error(self, world: OrderedWorld) -> None:
        relay = world.relay()
        assert relay.acquire([]) == []
        relay.store.release([])
        assert list(relay.store.stay(60.0, [Tenure(0, 1, 1)])) == [Tenure(0, 1, 1)]


def _moved(owner: Owner, number: int, *, handed_to: int, crashes: int) -> OrderedSettlement:
    found = owner.owned[number]
    return OrderedSettlement([Progress(found.tenure, 0, handed_to, found.careful_to, crashes)])
