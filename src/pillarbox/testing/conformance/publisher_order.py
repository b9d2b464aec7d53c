"""The contract of ``publish_in_order``: in each stream what is confirmed comes first, and nothing overtakes it.

Subclass :class:`PublisherOrderConformance` as :class:`.publisher.PublisherConformance`, with the same fixture.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

import pytest

from ...event.destination import Destination
from ...event.message import Message
from ...ports import BeginsInOrder, Confirmed, Outcome, Publisher, Rejected, UnderWay, Withheld
from .publisher import PublisherSuite, kinds
from .publisher_world import Arrived, PublisherUnderTest, PublisherWorld, message, messages, same


class PublisherOrderConformance(PublisherSuite):
    """What every broker's publisher must do where order is asked for."""

    @pytest.fixture
    def too_large(self, under_test: PublisherUnderTest) -> int:
        """How many bytes the broker refuses."""
        if under_test.too_large is None:
            pytest.skip("needs a size limit, which this broker does not have")
        return under_test.too_large

    @pytest.fixture
    def missing(self, under_test: PublisherUnderTest) -> Destination:
        """A destination that does not exist."""
        found = under_test.missing_destination()
        if found is None:
            pytest.skip("needs a missing destination, which this broker does not know")
        return found

    # All is well ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("keys", [1, 7, 600])
    def test_all_arrive_once_and_each_key_in_the_order_of_the_list(self, world: PublisherWorld, keys: int) -> None:
        there = world.under_test.new_destination()
        sent = messages(there, 600, keys=keys)
        with world.publisher() as publisher:
            for start in range(0, 600, 200):
                assert kinds(publisher.publish_in_order(sent[start : start + 200])) == {"Confirmed": 200}
        arrived = world.under_test.arrived(there, 600)
        assert same(sent, arrived)
        assert in_order(sent, arrived)

    def test_a_batch_larger_than_any_window_keeps_its_order(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        sent = messages(there, 5_000, keys=40)
        with world.publisher() as publisher:
            assert kinds(publisher.publish_in_order(sent)) == {"Confirmed": 5_000}
        arrived = world.under_test.arrived(there, 5_000)
        assert same(sent, arrived)
        assert in_order(sent, arrived)

    def test_an_empty_batch_is_no_work_in_order_either(self, world: PublisherWorld) -> None:
        with world.publisher() as publisher:
            assert publisher.publish_in_order([]) == []

    def test_both_ways_of_publishing_may_take_turns(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        sent = messages(there, 300, keys=3)
        with world.publisher() as publisher:
            assert kinds(publisher.publish_in_order(sent[:100])) == {"Confirmed": 100}
            assert kinds(publisher.publish(sent[100:200])) == {"Confirmed": 100}
            assert kinds(publisher.publish_in_order(sent[200:])) == {"Confirmed": 100}
        assert in_order(sent, world.under_test.arrived(there, 300))

    def test_threads_may_share_a_publisher_that_keeps_order(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        batches = [[message(there, key=f"t-{n}", payload=str(i).encode()) for i in range(100)] for n in range(4)]
        outcomes: list[Outcome] = []
        with world.publisher() as publisher:
            threads = [
                threading.Thread(target=lambda batch=batch: outcomes.extend(publisher.publish_in_order(batch)))
                for batch in batches
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        assert kinds(outcomes) == {"Confirmed": 400}
        assert in_order([one for batch in batches for one in batch], world.under_test.arrived(there, 400))

    # One is refused ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("at", [0, 6, 19], ids=["the-first", "in-the-middle", "the-last"])
    def test_behind_a_refused_message_its_key_waits_and_no_other(
        self, world: PublisherWorld, too_large: int, at: int
    ) -> None:
        there = world.under_test.new_destination()
        sent = messages(there, 60, keys=3)  # 20 of each
        bad = 3 * at + 1
        sent[bad] = sent[bad]._replace(payload=b"x" * too_large)
        with world.publisher() as publisher:
            outcomes = publisher.publish_in_order(sent)
            assert_stopped_at(sent, outcomes, bad)
            arrived = world.under_test.arrived(there, 40 + at)
            assert {one.headers["id"] for one in arrived} == confirmed_ids(sent, outcomes)
            # The caller gives that one up, and the rest may go.
            rest = [one for one, outcome in zip(sent, outcomes, strict=True) if isinstance(outcome, Withheld)]
            assert len(rest) == 19 - at
            assert set(kinds(publisher.publish_in_order(rest))) <= {"Confirmed"}
        good = sent[:bad] + sent[bad + 1 :]
        assert at == 19 or in_order(good, arrived + world.under_test.arrived(there, 19 - at))

    def test_two_refused_messages_stop_their_own_keys_each(self, world: PublisherWorld, too_large: int) -> None:
        there = world.under_test.new_destination()
        sent = messages(there, 80, keys=4)
        for at in (9, 14):  # the third of key k-1, the fourth of key k-2
            sent[at] = sent[at]._replace(payload=b"x" * (too_large + at))
        with world.publisher() as publisher:
            outcomes = publisher.publish_in_order(sent)
        assert kinds_of_key(sent, outcomes, "k-1") == {"Confirmed": 2, "Rejected": 1, "Withheld": 17}
        assert kinds_of_key(sent, outcomes, "k-2") == {"Confirmed": 3, "Rejected": 1, "Withheld": 16}
        assert kinds_of_key(sent, outcomes, "k-0") == kinds_of_key(sent, outcomes, "k-3") == {"Confirmed": 20}
        waits = [one for one in outcomes if isinstance(one, Withheld)]
        assert Counter(sent[9].event_id in one.reason for one in waits) == {True: 17, False: 16}
        assert Counter(sent[14].event_id in one.reason for one in waits) == {True: 16, False: 17}

    def test_a_key_is_held_back_for_the_one_destination_only(self, world: PublisherWorld, too_large: int) -> None:
        here, there = world.under_test.new_destination(), world.under_test.new_destination()
        sent = [*messages(here, 10, keys=1), *messages(there, 10, keys=1)]
        sent[4] = sent[4]._replace(payload=b"x" * too_large)
        with world.publisher() as publisher:
            outcomes = publisher.publish_in_order(sent)
        assert_stopped_at(sent, outcomes, 4)
        assert in_order(sent[10:], world.under_test.arrived(there, 10))

    def test_messages_without_a_key_wait_for_nobody(self, world: PublisherWorld, too_large: int) -> None:
        there = world.under_test.new_destination()
        sent = [one._replace(key=None) for one in messages(there, 40)]
        sent[17] = sent[17]._replace(payload=b"x" * too_large)
        with world.publisher() as publisher:
            outcomes = publisher.publish_in_order(sent)
        refused = outcomes.pop(17)
        assert isinstance(refused, Rejected)
        assert kinds(outcomes) == {"Confirmed": 39}

    # The next batch is begun while the one before is under way -------------------------------------------------------

    def test_batches_that_are_begun_ahead_arrive_once_and_in_order(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        sent = messages(there, 2_000, keys=12)
        with world.publisher() as publisher:
            for some in begun_ahead(publisher, [sent[at : at + 200] for at in range(0, 2_000, 200)]):
                assert kinds(some) == {"Confirmed": 200}
        arrived = world.under_test.arrived(there, 2_000)
        assert same(sent, arrived)
        assert in_order(sent, arrived)

    @pytest.mark.parametrize("at", [0, 1, 2, 3, 4], ids="batch-{}".format)
    def test_behind_a_refused_message_its_key_waits_in_the_batches_begun_ahead_as_well(
        self, world: PublisherWorld, too_large: int, at: int
    ) -> None:
        there = world.under_test.new_destination()
        sent = messages(there, 300, keys=12)
        bad = 60 * at + 13
        sent[bad] = sent[bad]._replace(payload=b"x" * too_large)
        with world.publisher() as publisher:
            ended = begun_ahead(publisher, [sent[start : start + 60] for start in range(0, 300, 60)])
        outcomes = [outcome for some in ended for outcome in some]
        overlap = 60 * min(at + 2, 5)  # what is begun later was begun knowing of the refusal
        assert_stopped_at(sent[:overlap], outcomes[:overlap], bad)
        arrived = world.under_test.arrived(there, len(confirmed_ids(sent, outcomes)))
        assert {one.headers["id"] for one in arrived} == confirmed_ids(sent, outcomes)
        others = [one for one in sent if one.key != sent[bad].key]
        assert in_order(others, [one for one in arrived if one.key != sent[bad].key])

    # The destination is missing ---------------------------------------------------------------------------------------

    def test_a_missing_destination_stops_no_other_and_catches_up_in_order(
        self, world: PublisherWorld, missing: Destination
    ) -> None:
        there = world.under_test.new_destination()
        good, late = messages(there, 60, keys=3), messages(missing, 60, keys=3)
        mixed = [one for pair in zip(good, late, strict=True) for one in pair]
        with world.publisher() as publisher:
            outcomes = publisher.publish_in_order(mixed)
            assert kinds(outcomes[::2]) == {"Confirmed": 60}
            assert all(is_missing(outcome) for outcome in outcomes[1:7:2]), "the first of each key says why"
            assert all(is_missing(one) or isinstance(one, Withheld) for one in outcomes[1::2])
            world.under_test.create(missing)
            resend(publisher.publish_in_order, late)
        assert in_order(good, world.under_test.arrived(there, 60))
        assert in_order(late, world.under_test.arrived(missing, 60))


# Helpers --------------------------------------------------------------------------------------------------------------


def begun_ahead(publisher: Publisher, batches: Sequence[Sequence[Message]]) -> list[list[Outcome]]:
    """The outcomes of each, with one batch begun behind the one that is awaited, as a relay does."""
    if not isinstance(publisher, BeginsInOrder):
        pytest.skip("needs a publisher that begins a batch while another is under way")
    found: list[list[Outcome]] = []
    under_way: deque[UnderWay] = deque()
    for batch in batches:
        under_way.append(publisher.begin_in_order(batch))
        if len(under_way) == 2:
            found.append(ended(under_way.popleft()))
    return found + [ended(wait) for wait in under_way]


def ended(wait: UnderWay, seconds: float = 30.0) -> list[Outcome]:
    """Its outcomes, within this time."""
    until = time.monotonic() + seconds
    while (outcomes := wait(0.1)) is None:
        assert time.monotonic() < until, "a batch has no outcomes"
    return outcomes


def in_order(sent: Sequence[Message], arrived: Sequence[Arrived]) -> bool:
    """All arrived, and the first occurrences of each key follow the order of ``sent``."""
    firsts: dict[str | None, list[str]] = {}
    for one in {one.headers["id"]: one for one in reversed(arrived)}.values():
        firsts.setdefault(one.key, []).append(one.headers["id"])
    wanted: dict[str | None, list[str]] = {}
    for this in sent:
        wanted.setdefault(this.key, []).append(this.event_id)
    return {key: ids[::-1] for key, ids in firsts.items()} == wanted


def assert_stopped_at(sent: Sequence[Message], outcomes: Sequence[Outcome], bad: int) -> None:
    """The message at ``bad`` is refused, what follows in its stream withheld in its name, all else confirmed."""
    refused = outcomes[bad]
    assert isinstance(refused, Rejected), refused
    assert refused.permanent
    stream = (sent[bad].destination, sent[bad].key)
    for at, (one, outcome) in enumerate(zip(sent, outcomes, strict=True)):
        if at > bad and (one.destination, one.key) == stream:
            assert isinstance(outcome, Withheld), (at, outcome)
            assert sent[bad].event_id in outcome.reason
        elif at != bad:
            assert isinstance(outcome, Confirmed), (at, outcome)


def confirmed_ids(sent: Sequence[Message], outcomes: Sequence[Outcome]) -> set[str]:
    """The event ids of what is confirmed."""
    return {one.event_id for one, outcome in zip(sent, outcomes, strict=True) if isinstance(outcome, Confirmed)}


def kinds_of_key(sent: Sequence[Message], outcomes: Sequence[Outcome], key: str) -> dict[str, int]:
    """How many of each kind the messages of a key met."""
    return Counter(type(outcome).__name__ for one, outcome in zip(sent, outcomes, strict=True) if one.key == key)


def is_missing(outcome: Outcome) -> bool:
    """Refused because there is no such destination."""
    return isinstance(outcome, Rejected) and outcome.of_destination and not outcome.permanent


def resend(
    publish: Callable[[Sequence[Message]], list[Outcome]], sent: Sequence[Message], *, seconds: float = 30
) -> None:
    """As a relay does: what is not confirmed is sent again, in order, until all is."""
    deadline = time.monotonic() + seconds
    left = list(sent)
    while left:
        assert time.monotonic() < deadline, f"{len(left)} are not confirmed in time"
        outcomes = publish(left)
        left = [one for one, outcome in zip(left, outcomes, strict=True) if not isinstance(outcome, Confirmed)]
