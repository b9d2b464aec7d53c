"""A store's contract, second part: what a settlement changes, and what comes back later."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from ...errors import PillarboxError
from ...ports import Sent, Settled, Settlement
from .store_world import StoredReceipt, StoreWorld, all_sent, confirmed, failed, needs


class SettlingConformance:
    """Settlements, counters, retries."""

    # Settling ---------------------------------------------------------------------------------------------------------

    def test_each_outcome_leaves_its_trace(self, world: StoreWorld) -> None:
        world.add(4)
        store = world.under_test.store("a")
        claim = store.claim(4)
        sent, retry, dead, back = claim.deliveries
        settlement = Settlement(
            claim.token,
            [Sent(sent.key, 5, 1_234_567_890_123)],
            [failed(retry, error="nack"), failed(dead, due_in=None, error="too large: ünï-☃")],
            [back.key],
        )
        assert store.settle(settlement) == Settled(1, 2, 1)
        assert [world.state(one.key) for one in claim.deliveries] == ["SENT", "RETRY", "DEAD", "PENDING"]
        expected = StoredReceipt("a", claim.token, 5, 1_234_567_890_123)
        assert world.under_test.receipts() == {(sent.key.id, 0): expected}
        assert world.under_test.parked() == {
            (retry.key.id, 0): ("RETRY", 1, "nack"),
            (dead.key.id, 0): ("DEAD", 1, "too large: ünï-☃"),
        }

    def test_a_broker_without_positions_leaves_a_receipt_without_them(self, world: StoreWorld) -> None:
        (number,) = world.add()
        store = world.under_test.store("a")
        claim = store.claim(1)
        store.settle(Settlement(claim.token, [Sent(claim.deliveries[0].key, None, None)]))
        assert world.under_test.receipts() == {(number, 0): StoredReceipt("a", claim.token, None, None)}

    def test_an_empty_settlement_changes_nothing(self, world: StoreWorld) -> None:
        world.add()
        assert world.under_test.store("a").settle(Settlement(1)) == Settled(0, 0, 0)
        assert world.states() == ["PENDING"]

    def test_settling_again_what_was_settled_is_not_a_loss(self, world: StoreWorld) -> None:
        """The answer to a COMMIT may be lost; the relay then settles once more."""
        world.add(4)
        store = world.under_test.store("a")
        claim = store.claim(4)
        sent, retry, dead, back = claim.deliveries
        settlement = Settlement(claim.token, [confirmed(sent)], [failed(retry), failed(dead, due_in=None)], [back.key])
        first = store.settle(settlement)
        assert store.settle(settlement) == first == Settled(1, 2, 1)
        assert [world.state(one.key) for one in claim.deliveries] == ["SENT", "RETRY", "DEAD", "PENDING"]

    def test_a_receipt_of_another_relay_does_not_hide_a_loss(self, world: StoreWorld) -> None:
        world.add()
        slow, quick = world.under_test.store("slow"), world.under_test.store("quick")
        old = slow.claim(1)
        world.under_test.pass_time(61)
        new = quick.claim(1)
        quick.settle(all_sent(new.token, new.deliveries))
        assert slow.settle(all_sent(old.token, old.deliveries)).lost == (old.deliveries[0].key,)
        assert world.under_test.receipts()[new.deliveries[0].key.id, 0].relay == "quick"

    def test_a_settlement_that_fails_half_way_changes_nothing(self, world: StoreWorld) -> None:
        needs(world.under_test.capabilities.can_break, "can_break")
        world.add(3)
        store = world.under_test.store("a")
        claim = store.claim(3)
        sent, retry, back = claim.deliveries
        settlement = Settlement(claim.token, [confirmed(sent)], [failed(retry)], [back.key])
        with world.under_test.broken_receipts(), pytest.raises(PillarboxError):
            store.settle(settlement)
        assert set(world.states()) == {"PROCESSING"}
        assert store.settle(settlement) == Settled(1, 1, 1)

    @pytest.mark.parametrize(
        ("error", "stored"),
        [
            ("", ""),
            ("a\0b", "a\\0b"),
            ("lone \ud800 surrogate", "lone \\ud800 surrogate"),
            ("ü☃😀" * 5_000, ("ü☃😀" * 5_000)[:2_000]),
            ("100 %s 'quoted' \\ \"x\" {}", "100 %s 'quoted' \\ \"x\" {}"),
        ],
        ids=["empty", "NUL", "surrogate", "long", "quotes"],
    )
    def test_any_error_text_can_be_recorded(self, world: StoreWorld, error: str, stored: str) -> None:
        (number,) = world.add()
        store = world.under_test.store("a")
        claim = store.claim(1)
        assert store.settle(Settlement(claim.token, parked=[failed(claim.deliveries[0], error=error)])).parked == 1
        assert world.under_test.parked()[number, 0][2] == stored

    def test_an_event_that_is_sent_again_keeps_one_receipt(self, world: StoreWorld) -> None:
        """A receipt that is there already must not keep its whole batch from being settled."""
        first, second = world.add(2)
        store = world.under_test.store("a")
        claim = store.claim(2)
        store.settle(all_sent(claim.token, claim.deliveries))
        old = world.under_test.receipts()
        world.under_test.ready_again(claim.deliveries[0])
        (third,) = world.add()
        again = store.claim(10)
        settlement = Settlement(again.token, [Sent(one.key, 2, 20) for one in again.deliveries])
        assert store.settle(settlement) == Settled(2, 0, 0)
        new = StoredReceipt("a", again.token, 2, 20)
        repeated = claim.deliveries[0].key.id
        untouched = ({first, second} - {repeated}).pop()
        assert world.under_test.receipts() == {
            (repeated, 0): new,
            (third, 0): new,
            (untouched, 0): old[untouched, 0],
        }

    # Counting claims --------------------------------------------------------------------------------------------------

    def test_each_claim_that_dies_is_counted(self, world: StoreWorld) -> None:
        world.add()
        store = world.under_test.store("a")
        counts = []
        for _ in range(5):
            (delivery,) = store.claim(1).deliveries
            counts.append((delivery.claims, delivery.attempts))
            world.under_test.pass_time(61)
        assert counts == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]

    def test_giving_back_takes_the_claim_off_and_frees_the_row_at_once(self, world: StoreWorld) -> None:
        world.add(2)
        store = world.under_test.store("a")
        for _ in range(3):
            claim = store.claim(2)
            assert [one.claims for one in claim.deliveries] == [1, 1]
            back = [one.key for one in claim.deliveries]
            assert store.settle(Settlement(claim.token, given_back=back)) == Settled(0, 0, 2)
            assert set(world.states()) == {"PENDING"}

    def test_parking_resets_the_claims(self, world: StoreWorld) -> None:
        world.add()
        store = world.under_test.store("a")
        for _ in range(3):
            claim = store.claim(1)
            world.under_test.pass_time(61)
        claim = store.claim(1)
        assert claim.deliveries[0].claims == 4
        store.settle(Settlement(claim.token, parked=[failed(claim.deliveries[0], due_in=1.0)]))
        world.under_test.pass_time(2)
        store.move_due(10)
        (delivery,) = store.claim(1).deliveries
        assert (delivery.claims, delivery.attempts) == (1, 1)

    # Coming back ------------------------------------------------------------------------------------------------------

    def test_a_retry_comes_back_when_it_is_due_and_not_before(self, world: StoreWorld) -> None:
        """C023: by the store's clock, attempts kept."""
        world.add(2)
        store = world.under_test.store("a")
        claim = store.claim(2)
        soon, late = claim.deliveries
        store.settle(Settlement(claim.token, parked=[failed(soon, due_in=30.0), failed(late, due_in=300.0)]))
        assert store.move_due(10) == 0
        assert not store.claim(10).deliveries
        world.under_test.pass_time(31)
        assert store.move_due(10) == 1
        (again,) = store.claim(10).deliveries
        assert (again.key, again.attempts, again.message) == (soon.key, 1, soon.message)
        assert world.state(late.key) == "RETRY"

    def test_a_dead_one_never_comes_back_by_itself(self, world: StoreWorld) -> None:
        world.add()
        store = world.under_test.store("a")
        claim = store.claim(1)
        store.settle(Settlement(claim.token, parked=[failed(claim.deliveries[0], due_in=None)]))
        world.under_test.pass_time(86_400)
        assert store.move_due(10) == 0
        assert world.states() == ["DEAD"]

    def test_the_due_mover_takes_no_more_than_its_limit_and_the_longest_due_first(self, world: StoreWorld) -> None:
        world.add(5)
        store = world.under_test.store("a")
        claim = store.claim(5)
        delays = [50.0, 10.0, 40.0, 20.0, 30.0]
        parked = [failed(one, due_in=delay) for one, delay in zip(claim.deliveries, delays, strict=True)]
        store.settle(Settlement(claim.token, parked=parked))
        world.under_test.pass_time(60)
        assert [store.move_due(2), store.move_due(0)] == [2, 0]
        moved = {one.key for one in store.claim(10).deliveries}
        assert moved == {claim.deliveries[1].key, claim.deliveries[3].key}
        assert [store.move_due(10), store.move_due(10)] == [3, 0]

    def test_relays_that_look_for_due_rows_at_once_move_each_of_them_once(self, world: StoreWorld) -> None:
        """C025: all replicas see the same due rows when they start."""
        world.add(200)
        store = world.under_test.store("a")
        claim = store.claim(200)
        store.settle(Settlement(claim.token, parked=[failed(one, due_in=1.0) for one in claim.deliveries]))
        world.under_test.pass_time(2)
        moved: list[int] = []

        def work(name: str) -> None:
            mover = world.under_test.store(name)
            while count := mover.move_due(15):
                moved.append(count)

        threads = [threading.Thread(target=work, args=(f"relay-{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        # A mover that skips what others hold may stop early; what is left comes with the next look.
        while count := store.move_due(200):
            moved.append(count)
        assert sum(moved) == 200
        assert Counter(world.states()) == {"PENDING": 200}
