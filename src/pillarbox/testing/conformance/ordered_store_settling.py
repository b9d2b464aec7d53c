"""The partition lease's contract, third part: what a settlement changes, and what it leaves alone."""

from __future__ import annotations

import pytest

from ...errors import PillarboxError
from ...ports import OrderedSettled, OrderedSettlement, Sent
from .ordered_store_world import OrderedWorld, hold_on, set_aside, stream_of
from .store_world import StoredReceipt


class OrderedSettlingConformance:
    """Settlements, fences, counters."""

    def test_sent_events_leave_the_queue_with_a_receipt_under_their_partition_s_token(
        self, world: OrderedWorld
    ) -> None:
        numbers = world.add(40)
        first = world.relay("first")
        first.acquire([0, 1, 2])
        world.under_test.pass_time(61)
        relay = world.relay("a")
        relay.acquire()
        found = relay.read()
        assert relay.settle(sent=found) == OrderedSettled(40, 0)
        assert world.states() == ["SENT"] * 40
        tokens = {one.key.id: relay.tenure(one.key.partition_no).token for one in found}
        assert set(tokens.values()) == {1, 2}
        assert world.under_test.receipts() == {
            (number, 0): StoredReceipt("a", tokens[number], 1, number) for number in numbers
        }

    def test_a_broker_without_positions_leaves_a_receipt_without_them(self, world: OrderedWorld) -> None:
        (number,) = world.add()
        relay = world.relay()
        relay.acquire()
        (one,) = relay.read()
        progress = relay.progress([one.key.partition_no])
        relay.store.settle(OrderedSettlement(progress, [Sent(one.key, None, None)]))
        assert world.under_test.receipts() == {(number, 0): StoredReceipt("a", 1, None, None)}

    def test_each_outcome_leaves_its_trace(self, world: OrderedWorld) -> None:
        world.add(4, key="k")
        relay = world.relay()
        relay.acquire()
        sent, retry, held, dead = relay.read()
        settled = relay.settle(
            sent=[sent],
            aside=[
                set_aside(retry, "RETRY", 30.0, "nack"),
                set_aside(held, "HELD", error=""),
                set_aside(dead, "DEAD", error="too large: ünï-☃"),
            ],
            holds=[hold_on(retry, "backoff", 30.0)],
        )
        assert settled == OrderedSettled(1, 3)
        assert world.states() == ["SENT", "RETRY", "HELD", "DEAD"]
        assert list(world.under_test.parked().values()) == [
            ("RETRY", 1, "nack"),
            ("HELD", 0, ""),
            ("DEAD", 1, "too large: ünï-☃"),
        ]
        assert relay.read() == []

    def test_a_settlement_without_rows_moves_the_marks_and_renews(self, world: OrderedWorld) -> None:
        world.add(20)
        relay, other = world.relay("a"), world.relay("b")
        relay.acquire([0, 1])
        world.under_test.pass_time(50)
        assert relay.store.settle(OrderedSettlement(relay.progress([0], low_id=3, handed_to=9))) == OrderedSettled(0, 0)
        world.under_test.pass_time(50)
        assert [one.tenure.partition_no for one in other.acquire([0, 1])] == [1]
        world.under_test.pass_time(61)
        (found,) = other.acquire([0])
        assert (found.low_id, found.careful_to, found.crashes) == (3, 9, 1)

    def test_marks_may_go_down_after_a_straggler(self, world: OrderedWorld) -> None:
        world.add(20)
        relay = world.relay()
        relay.acquire([0])
        relay.store.settle(OrderedSettlement(relay.progress([0], low_id=9)))
        relay.store.settle(OrderedSettlement(relay.progress([0], low_id=4)))
        relay.store.release(relay.progress([0], low_id=2))
        assert relay.acquire([0])[0].low_id == 2

    def test_an_empty_settlement_changes_nothing(self, world: OrderedWorld) -> None:
        world.add()
        relay = world.relay()
        assert relay.store.settle(OrderedSettlement([])) == OrderedSettled(0, 0)
        assert world.states() == ["PENDING"]

    # Fences -----------------------------------------------------------------------------------------------------------

    def test_a_stale_owner_settles_nothing(self, world: OrderedWorld) -> None:
        """C084: a relay that was stopped beyond its lease and wakes up."""
        world.add(30)
        stale, owner = world.relay("stale"), world.relay("owner")
        stale.acquire()
        found = stale.read()
        world.under_test.pass_time(61)
        owner.acquire()
        settled = stale.settle(
            sent=found[:20], aside=[set_aside(one, "DEAD") for one in found[20:]], holds=[hold_on(found[20], "dead")]
        )
        assert (settled.sent, settled.aside, settled.vanished) == (0, 0, ())
        assert sorted(settled.lost) == sorted(stale.tenure(n) for n in {one.key.partition_no for one in found})
        assert world.states() == ["PENDING"] * 30
        assert list(owner.store.holds(range(16), drain_only=False)) == []
        assert owner.settle(sent=found).sent == 30

    def test_what_is_still_owned_settles_beside_what_is_lost(self, world: OrderedWorld) -> None:
        world.add(30)
        stale, owner = world.relay("stale"), world.relay("owner")
        stale.acquire()
        found = stale.read()
        lost = found[0].key.partition_no
        world.under_test.pass_time(50)
        stale.store.stay(60.0, [one for one in stale.tenures if one.partition_no != lost])
        world.under_test.pass_time(50)
        assert [one.tenure.partition_no for one in owner.acquire()] == [lost]
        rest = [one for one in found if one.key.partition_no != lost]
        settled = stale.settle(sent=found[:-1], aside=[set_aside(found[-1], "DEAD")])
        assert settled == OrderedSettled(len(rest) - 1, 1, (stale.tenure(lost),))
        pending = {key for key, state in world.under_test.states().items() if state == "PENDING"}
        assert pending == {(one.key.id, 0) for one in found if one.key.partition_no == lost}

    def test_the_same_relay_again_is_another_owner(self, world: OrderedWorld) -> None:
        world.add(10)
        old, new = world.relay("a"), world.relay("a")
        old.acquire()
        found = old.read()
        world.under_test.pass_time(61)
        new.acquire()
        assert (old.settle(sent=found).sent, world.states()) == (0, ["PENDING"] * 10)

    def test_settling_again_what_was_settled_is_neither_a_loss_nor_a_second_time(self, world: OrderedWorld) -> None:
        """The answer to a COMMIT may be lost; the relay then settles once more."""
        world.add(3, key="k")
        relay = world.relay()
        relay.acquire()
        sent, retry, dead = relay.read()
        arguments = {
            "sent": [sent],
            "aside": [set_aside(retry, "RETRY", 30.0), set_aside(dead, "DEAD")],
            "holds": [hold_on(retry, "backoff", 30.0)],
        }
        first = relay.settle(**arguments)  # type: ignore[arg-type]
        assert relay.settle(**arguments) == first == OrderedSettled(1, 2)  # type: ignore[arg-type]
        assert world.states() == ["SENT", "RETRY", "DEAD"]
        assert relay.settle(sent=[sent]) == OrderedSettled(1, 0)

    def test_rows_that_vanished_have_their_receipts_all_the_same(self, world: OrderedWorld) -> None:
        world.add(4, key="k")
        relay = world.relay()
        relay.acquire()
        found = relay.read()
        world.under_test.lose_work(found[0].key)
        world.under_test.lose_work(found[2].key)
        settled = relay.settle(sent=found[:2], aside=[set_aside(one, "DEAD") for one in found[2:]])
        assert settled == OrderedSettled(1, 1, (), (found[0].key, found[2].key))
        states = world.under_test.states()
        assert [states.get((one.key.id, 0)) for one in found] == ["SENT", "SENT", None, "DEAD"]

    def test_an_event_that_is_sent_again_keeps_one_receipt(self, world: OrderedWorld) -> None:
        """A receipt that is there already must not keep its whole round from being settled."""
        world.add(2, key="k")
        relay = world.relay()
        relay.acquire()
        found = relay.read()
        relay.settle(sent=found)
        world.under_test.ready_again(found[0])
        (third,) = world.add(1, key="k")
        world.under_test.pass_time(61)
        other = world.relay("b")
        other.acquire()
        assert other.settle(sent=other.read()) == OrderedSettled(2, 0)
        token = other.tenure(found[0].key.partition_no).token
        assert world.under_test.receipts() == {
            (found[0].key.id, 0): StoredReceipt("b", token, 1, found[0].key.id),
            (found[1].key.id, 0): StoredReceipt("a", 1, 1, found[1].key.id),
            (third, 0): StoredReceipt("b", token, 1, third),
        }

    def test_a_settlement_that_fails_half_way_changes_nothing(self, world: OrderedWorld) -> None:
        if not world.under_test.capabilities.can_break:
            pytest.skip("this store does not declare can_break")
        world.add(3, key="k")
        relay = world.relay()
        relay.acquire()
        found = relay.read()
        arguments = {
            "sent": found[:1],
            "aside": [set_aside(one, "HELD") for one in found[1:]],
            "holds": [hold_on(found[1], "dead")],
        }
        with world.under_test.broken_receipts(), pytest.raises(PillarboxError):
            relay.settle(**arguments)  # type: ignore[arg-type]
        assert world.states() == ["PENDING"] * 3
        assert list(relay.store.holds(range(16), drain_only=False)) == []
        assert relay.settle(**arguments) == OrderedSettled(1, 2)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("error", "stored"),
        [
            ("a\0b", "a\\0b"),
            ("lone \ud800 surrogate", "lone \\ud800 surrogate"),
            ("ü☃😀" * 5_000, ("ü☃😀" * 5_000)[:2_000]),
            ("100 %s 'quoted' \\ \"x\" {} :name", "100 %s 'quoted' \\ \"x\" {} :name"),
        ],
        ids=["NUL", "surrogate", "long", "quotes"],
    )
    def test_any_error_text_can_be_recorded(self, world: OrderedWorld, error: str, stored: str) -> None:
        (number,) = world.add()
        relay = world.relay()
        relay.acquire()
        (one,) = relay.read()
        relay.settle(aside=[set_aside(one, "DEAD", error=error)], holds=[hold_on(one, "dead")._replace(reason=error)])
        assert world.under_test.parked()[number, 0] == ("DEAD", 1, stored)
        assert relay.store.holds(range(16), drain_only=False)[0].reason == stored

    def test_a_great_round_settles_as_one(self, world: OrderedWorld) -> None:
        """More rows than one statement names, in every way of leaving."""
        world.add(2_600)
        relay = world.relay()
        relay.acquire()
        found = relay.read()
        parts = [found[i::3] for i in range(3)]
        settled = relay.settle(
            sent=parts[0],
            aside=[*(set_aside(one, "RETRY", 5.0) for one in parts[1]), *(set_aside(one, "HELD") for one in parts[2])],
            holds=[hold_on(one, "backoff", 5.0) for one in parts[1]],
        )
        assert settled == OrderedSettled(len(parts[0]), len(parts[1]) + len(parts[2]))
        assert len(relay.store.holds(range(16), drain_only=False)) == len(parts[1])
        again = relay.settle(
            sent_parked=parts[1],
            aside_parked=[set_aside(one, "DEAD") for one in parts[2]],
            freed=[stream_of(one) for one in parts[1]],
        )
        assert again == OrderedSettled(len(parts[1]), len(parts[2]))
        assert set(world.states()) == {"SENT", "DEAD"}
        assert list(relay.store.holds(range(16), drain_only=False)) == []

    # Charging ---------------------------------------------------------------------------------------------------------

    def test_a_suspect_is_charged_before_it_is_sent_and_a_settlement_forgets_it(self, world: OrderedWorld) -> None:
        world.add(1, key="k")
        relay = world.relay()
        relay.acquire()
        (one,) = relay.read()
        tenure = relay.tenure(one.key.partition_no)
        assert [relay.store.charge(tenure, one.key, parked=False) for _ in range(2)] == [1, 2]
        assert relay.read()[0].claims == 2
        relay.settle(aside=[set_aside(one, "RETRY", 5.0)], holds=[hold_on(one, "backoff", 5.0)])
        (parked,) = relay.store.read_parked(stream_of(one), None, 10, 10**6).deliveries
        assert parked.claims == 0
        assert relay.store.charge(tenure, one.key, parked=True) == 1
        assert relay.store.read_parked(stream_of(one), None, 10, 10**6).deliveries[0].claims == 1

    def test_nobody_charges_what_is_gone_or_not_his(self, world: OrderedWorld) -> None:
        world.add(1, key="k")
        relay, other = world.relay("a"), world.relay("b")
        relay.acquire()
        (one,) = relay.read()
        tenure = relay.tenure(one.key.partition_no)
        assert relay.store.charge(tenure, one.key._replace(dest=5), parked=False) == 0
        assert relay.store.charge(tenure, one.key, parked=True) == 0
        world.under_test.pass_time(61)
        other.acquire()
        assert relay.store.charge(tenure, one.key, parked=False) == 0
        assert other.read()[0].claims == 0
