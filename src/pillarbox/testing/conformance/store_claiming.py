"""A store's contract, first part: who gets a row, what comes with it, and how long it stays theirs."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime

import pytest

from ...event.destination import Destination
from ...policy.lanes import lane_of, partition_of
from ...ports import Parked, Settled, Settlement, WorkKey
from .store_world import StoreUnderTest, StoreWorld, all_sent, confirmed, event, failed, needs


class ClaimingConformance:
    """Claims, leases, several destinations, orphans."""

    # Claiming ---------------------------------------------------------------------------------------------------------

    def test_an_empty_outbox_gives_nothing(self, under_test: StoreUnderTest) -> None:
        claim = under_test.store("a").claim(100)
        assert (list(claim.deliveries), list(claim.orphans)) == ([], [])

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"\0",
            b"null",
            bytes(range(256)) * 3,
            "ünï-☃-😀".encode(),
            b'{"z":1.0,"a":12345678901234567890}',
            b"x" * 900_000,
        ],
        ids=["empty", "NUL", "null", "all-bytes", "unicode", "key-order-and-digits", "900-kB"],
    )
    def test_a_payload_is_claimed_byte_for_byte(self, world: StoreWorld, payload: bytes) -> None:
        """C069: stored as bytes, identical on arrival."""
        world.add(payload=payload)
        (delivery,) = world.under_test.store("a").claim(1).deliveries
        assert delivery.message.payload == payload
        assert type(delivery.message.payload) is bytes

    def test_a_message_is_claimed_as_it_was_added(self, under_test: StoreUnderTest) -> None:
        full = event(
            headers='{"trace":"ünï-☃-😀"}',
            routing_key="r.k",
            key="ключ-☃",
            occurred_at=datetime(1999, 12, 31, tzinfo=UTC),
        )
        bare = event(key=None, aggregate_type=None, aggregate_id=None, routing_key=None, headers=None)
        long = event(key="k" * 255, event_type="t" * 255, destination="d" * 255, content_type="c" * 255)
        under_test.add([full, bare, long])
        found = {one.message.event_id: one for one in under_test.store("a").claim(10).deliveries}
        for sent in (full, bare, long):
            assert found[sent.event_id].message == sent
            assert found[sent.event_id].message.occurred_at.utcoffset() == sent.occurred_at.utcoffset()
            assert found[sent.event_id].lane == lane_of(sent.key or sent.event_id)
            assert found[sent.event_id].key.partition_no == partition_of(found[sent.event_id].lane)

    def test_keys_that_differ_only_in_case_or_trailing_space_stay_apart(self, under_test: StoreUnderTest) -> None:
        messages = [event(key=key) for key in ("a", "A", "ä", "a ")]
        under_test.add(messages)
        found = {one.message.event_id: one.message.key for one in under_test.store("a").claim(10).deliveries}
        assert [found[one.event_id] for one in messages] == ["a", "A", "ä", "a "]

    def test_a_claim_takes_no_more_than_its_limit(self, world: StoreWorld) -> None:
        world.add(25)
        store = world.under_test.store("a")
        sizes = [len(store.claim(10).deliveries) for _ in range(4)]
        assert sizes == [10, 10, 5, 0]

    def test_events_of_one_partition_are_claimed_in_the_order_of_their_ids(self, world: StoreWorld) -> None:
        world.add(30, key="same")
        store = world.under_test.store("a")
        ids = [one.key.id for _ in range(3) for one in store.claim(10).deliveries]
        assert ids == sorted(ids)
        assert len(ids) == 30

    def test_every_partition_gets_its_turn_before_a_large_one_is_empty(self, world: StoreWorld) -> None:
        world.add(500, key="busy")
        (quiet,) = world.add(1, key=_key_in_another_partition("busy"))
        store = world.under_test.store("a")
        claimed = [one.key.id for _ in range(20) for one in store.claim(10).deliveries]
        assert quiet in claimed

    def test_tokens_grow(self, world: StoreWorld) -> None:
        store = world.under_test.store("a")
        tokens = [store.claim(1).token for _ in range(20)]
        assert tokens == sorted(set(tokens))

    def test_a_batch_of_thousands_is_claimed_and_settled(self, world: StoreWorld) -> None:
        world.add(2_500)
        store = world.under_test.store("a")
        claims = [store.claim(2_000), store.claim(2_000)]
        assert [len(one.deliveries) for one in claims] == [2_000, 500]
        assert [store.settle(all_sent(one.token, one.deliveries)).sent for one in claims] == [2_000, 500]
        assert Counter(world.states()) == {"SENT": 2_500}

    # Leases -----------------------------------------------------------------------------------------------------------

    def test_what_is_leased_is_not_claimed_again(self, world: StoreWorld) -> None:
        world.add(3)
        first, second = world.under_test.store("a"), world.under_test.store("b")
        assert len(first.claim(2).deliveries) == 2
        assert len(second.claim(10).deliveries) == 1
        assert len(first.claim(10).deliveries) == 0
        assert set(world.states()) == {"PROCESSING"}

    def test_four_relays_claim_each_event_once(self, world: StoreWorld) -> None:
        world.add(400)
        taken: list[WorkKey] = []

        def work(name: str) -> None:
            store = world.under_test.store(name)
            while deliveries := store.claim(20).deliveries:
                taken.extend(one.key for one in deliveries)

        threads = [threading.Thread(target=work, args=(f"relay-{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(taken) == 400
        assert max(Counter(taken).values()) == 1

    def test_an_expired_lease_is_taken_over_and_the_late_settle_is_refused(self, world: StoreWorld) -> None:
        """C084: all terminal updates need owner and token."""
        world.add(2)
        slow, quick = world.under_test.store("slow"), world.under_test.store("quick")
        old = slow.claim(10)
        world.under_test.pass_time(61)
        new = quick.claim(10)
        assert [one.claims for one in new.deliveries] == [2, 2]
        settled = slow.settle(all_sent(old.token, old.deliveries))
        assert settled == Settled(0, 0, 0, tuple(sorted(one.key for one in old.deliveries)))
        assert set(world.states()) == {"PROCESSING"}
        assert world.under_test.receipts() == {}
        assert quick.settle(all_sent(new.token, new.deliveries)) == Settled(2, 0, 0)

    def test_a_relay_that_lost_some_rows_settles_the_others(self, world: StoreWorld) -> None:
        world.add(4)
        slow, quick = world.under_test.store("slow"), world.under_test.store("quick")
        old = slow.claim(4)
        a, b, c, d = old.deliveries
        world.under_test.pass_time(61)
        taken = [one.key for one in quick.claim(2).deliveries]
        kept = [one.key for one in old.deliveries if one.key not in taken]
        settled = slow.settle(Settlement(old.token, [confirmed(a), confirmed(b)], [failed(c)], [d.key]))
        assert settled.sent + settled.parked + settled.given_back == 2
        assert sorted(settled.lost) == sorted(taken)
        assert {world.state(key) for key in taken} == {"PROCESSING"}
        assert "PROCESSING" not in {world.state(key) for key in kept}

    def test_a_settle_under_an_older_token_of_the_same_relay_is_refused(self, world: StoreWorld) -> None:
        world.add()
        store = world.under_test.store("a")
        old = store.claim(1)
        world.under_test.pass_time(61)
        new = store.claim(1)
        assert store.settle(all_sent(old.token, old.deliveries)).lost == (old.deliveries[0].key,)
        assert store.settle(all_sent(new.token, new.deliveries)).sent == 1

    def test_a_settle_under_a_token_that_is_ours_by_another_relay_is_refused(self, world: StoreWorld) -> None:
        world.add()
        claim = world.under_test.store("a").claim(1)
        thief = world.under_test.store("b")
        assert thief.settle(all_sent(claim.token, claim.deliveries)).lost == (claim.deliveries[0].key,)
        assert world.states() == ["PROCESSING"]

    def test_a_late_settle_of_rows_that_nobody_took_is_accepted(self, world: StoreWorld) -> None:
        world.add(2)
        store = world.under_test.store("a")
        claim = store.claim(2)
        world.under_test.pass_time(3_600)
        assert store.settle(all_sent(claim.token, claim.deliveries)) == Settled(2, 0, 0)

    def test_a_renewed_lease_holds(self, world: StoreWorld) -> None:
        """C027, C083: the lease is renewed while the work is in flight."""
        world.add(3)
        store, other = world.under_test.store("a"), world.under_test.store("b")
        claim = store.claim(3)
        keys = [one.key for one in claim.deliveries]
        for _ in range(3):
            world.under_test.pass_time(40)
            assert store.renew(claim.token, keys) == 3
            assert not other.claim(10).deliveries
        assert store.settle(all_sent(claim.token, claim.deliveries)).sent == 3

    def test_renewing_counts_only_what_is_still_held(self, world: StoreWorld) -> None:
        world.add(3)
        slow, quick = world.under_test.store("slow"), world.under_test.store("quick")
        old = slow.claim(3)
        keys = [one.key for one in old.deliveries]
        world.under_test.pass_time(61)
        quick.claim(1)
        assert slow.renew(old.token, keys) == 2
        assert len(quick.claim(10).deliveries) == 0
        assert slow.renew(old.token, []) == 0
        assert slow.renew(old.token + 1, keys) == 0

    # Several destinations ---------------------------------------------------------------------------------------------

    def test_each_destination_is_a_delivery_of_its_own(self, world: StoreWorld) -> None:
        """C073: what one destination confirms is settled for that one alone."""
        message = event(destination="orders", routing_key=None)
        more = [Destination("audit", "a.b"), Destination("", "queue-☃")]
        (number,) = world.under_test.add([message], more)
        store = world.under_test.store("a")
        claim = store.claim(10)
        found = {one.key.dest: (one.message.destination, one.message.routing_key) for one in claim.deliveries}
        assert found == {0: ("orders", None), 1: ("audit", "a.b"), 2: ("", "queue-☃")}
        assert {one.message.payload for one in claim.deliveries} == {message.payload}
        first, second, third = sorted(claim.deliveries)
        store.settle(Settlement(claim.token, [confirmed(first)], [failed(second)], [third.key]))
        assert world.under_test.states() == {(number, 0): "SENT", (number, 1): "RETRY", (number, 2): "PENDING"}

    def test_a_claim_may_end_between_two_destinations_of_one_event(self, world: StoreWorld) -> None:
        (number,) = world.under_test.add([event()], [Destination("audit")])
        one, two = world.under_test.store("one"), world.under_test.store("two")
        first, second = one.claim(1), two.claim(1)
        assert [first.deliveries[0].key.dest, second.deliveries[0].key.dest] == [0, 1]
        assert two.settle(all_sent(second.token, second.deliveries)) == Settled(1, 0, 0)
        assert world.under_test.states() == {(number, 0): "PROCESSING", (number, 1): "SENT"}

    # Orphans ----------------------------------------------------------------------------------------------------------

    def test_work_without_its_event_is_reported_and_can_be_set_aside(self, world: StoreWorld) -> None:
        needs(world.under_test.capabilities.can_lose_events, "can_lose_events")
        lost, kept = world.add(2)
        world.under_test.lose_event(lost)
        store = world.under_test.store("a")
        claim = store.claim(10)
        assert [one.key.id for one in claim.deliveries] == [kept]
        (orphan,) = claim.orphans
        assert (orphan.key.id, orphan.attempts, orphan.claims) == (lost, 0, 1)
        dead = Parked(orphan.key, orphan.lane, "DEAD", None, orphan.attempts, "the event is missing")
        assert store.settle(Settlement(claim.token, parked=[dead])).parked == 1
        assert world.state(orphan.key) == "DEAD"


def _key_in_another_partition(key: str) -> str:
    taken = partition_of(lane_of(key))
    return next(f"quiet-{n}" for n in range(1_000) if partition_of(lane_of(f"quiet-{n}")) != taken)
