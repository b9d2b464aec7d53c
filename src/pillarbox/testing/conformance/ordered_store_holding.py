"""The partition lease's contract, last part: holds, what waits under them, and how they end."""

from __future__ import annotations

from ...ports import EVERY_LANE, OrderedSettled
from .ordered_store_world import OrderedWorld, Owner, hold_on, set_aside, stream_of
from .store_world import event


class HoldingConformance:
    """Holds."""

    def test_a_hold_ends_when_nothing_waits_under_it(self, world: OrderedWorld) -> None:
        relay = owner_of_three(world)
        head, second, third = relay.read()
        stream = stream_of(head)
        relay.settle(
            aside=[set_aside(head, "RETRY", 5.0), set_aside(second, "HELD"), set_aside(third, "HELD")],
            holds=[hold_on(head, "backoff", 5.0)],
        )
        settled = relay.settle(sent_parked=[head, second], freed=[stream])
        assert settled == OrderedSettled(2, 0, kept=(stream,))
        assert relay.settle(sent_parked=[third], freed=[stream]) == OrderedSettled(1, 0)
        assert list(relay.store.holds(range(16), drain_only=False)) == []
        assert world.states() == ["SENT"] * 3

    def test_a_dead_or_buried_row_keeps_no_hold(self, world: OrderedWorld) -> None:
        relay = owner_of_three(world)
        head, second, third = relay.read()
        relay.settle(
            sent=[second, third],
            aside=[set_aside(head, "DEAD")],
            holds=[hold_on(head, "dead")],
            freed=[stream_of(head)],
        )
        assert list(relay.store.holds(range(16), drain_only=False)) == []

    def test_freeing_what_is_not_held_is_no_error(self, world: OrderedWorld) -> None:
        relay = owner_of_three(world)
        head, *_ = relay.read()
        assert relay.settle(freed=[stream_of(head), stream_of(head)]) == OrderedSettled(0, 0)

    def test_a_hold_is_replaced_by_a_later_one(self, world: OrderedWorld) -> None:
        relay = owner_of_three(world)
        head, *_ = relay.read()
        relay.settle(holds=[hold_on(head, "backoff", 5.0)])
        relay.settle(holds=[hold_on(head, "dead")])
        (found,) = relay.store.holds(range(16), drain_only=False)
        assert (found.mode, found.due_in, found.head_id) == ("dead", None, head.key.id)

    def test_a_parked_row_changes_its_state_in_place(self, world: OrderedWorld) -> None:
        relay = owner_of_three(world)
        head, second, third = relay.read()
        relay.settle(
            aside=[set_aside(head, "RETRY", 5.0), set_aside(second, "HELD"), set_aside(third, "HELD")],
            holds=[hold_on(head, "backoff", 5.0)],
        )
        (again, *_) = relay.store.read_parked(stream_of(head), None, 10, 10**6).deliveries
        assert again.attempts == 1
        assert relay.settle(aside_parked=[set_aside(again, "DEAD")], holds=[hold_on(head, "dead")]).aside == 1
        assert world.states() == ["DEAD", "HELD", "HELD"]
        assert world.under_test.parked()[head.key.id, 0] == ("DEAD", 2, "no")

    def test_a_drained_row_that_is_settled_twice_is_known(self, world: OrderedWorld) -> None:
        relay = owner_of_three(world)
        found = relay.read()
        relay.settle(aside=[set_aside(one, "HELD") for one in found], holds=[hold_on(found[0], "backoff", 5.0)])
        settlement = relay.settlement(sent_parked=found, freed=[stream_of(found[0])])
        assert relay.store.settle(settlement) == relay.store.settle(settlement) == OrderedSettled(3, 0)

    def test_the_same_lane_of_another_destination_is_another_stream(self, world: OrderedWorld) -> None:
        world.under_test.add([event(key="k", destination=where) for where in ("one", "two")])
        relay = world.relay()
        relay.acquire()
        one, two = relay.read()
        relay.settle(
            aside=[set_aside(one, "HELD"), set_aside(two, "HELD")], holds=[hold_on(one, "dead"), hold_on(two, "dead")]
        )
        assert [d.key for d in relay.store.read_parked(stream_of(two), None, 9, 10**6).deliveries] == [two.key]
        settled = relay.settle(sent_parked=[two], freed=[stream_of(one), stream_of(two)])
        assert settled.kept == (stream_of(one),)

    def test_a_hold_on_a_destination_waits_for_lanes_without_one_of_their_own(self, world: OrderedWorld) -> None:
        relay = owner_of_three(world)
        head, second, third = relay.read()
        everything = stream_of(head)._replace(lane=EVERY_LANE)
        relay.settle(
            aside=[set_aside(one, "HELD") for one in (head, second, third)],
            holds=[hold_on(head, "away", 5.0, EVERY_LANE)],
        )
        assert relay.settle(freed=[everything]).kept == (everything,)
        relay.settle(holds=[hold_on(head, "backoff", 5.0)])
        assert relay.settle(freed=[everything]).kept == ()
        assert [one.stream for one in relay.store.holds(range(16), drain_only=False)] == [stream_of(head)]


def owner_of_three(world: OrderedWorld) -> Owner:
    """A relay that owns everything, and three events of one key."""
    world.add(3, key="k")
    relay = world.relay()
    relay.acquire()
    return relay
