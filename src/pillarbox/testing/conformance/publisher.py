"""The contract of a publisher: one honest outcome per message, and what is confirmed has arrived, unchanged.

Subclass :class:`PublisherConformance` in a test module and give it one fixture::

    class TestMyBroker(PublisherConformance):
        @pytest.fixture
        def under_test(self) -> PublisherUnderTest: ...
"""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from ...event.message import to_headers
from ...ports import Confirmed, Outcome, PublisherCapabilities, Rejected
from .publisher_world import PublisherUnderTest, PublisherWorld, message, messages, same


class PublisherSuite:
    """Fixtures that the classes for publishers share."""

    @pytest.fixture
    def world(self, under_test: PublisherUnderTest) -> PublisherWorld:
        """The broker and messages for it."""
        return PublisherWorld(under_test)

    @pytest.fixture
    def capabilities(self, under_test: PublisherUnderTest) -> PublisherCapabilities:
        """What the publisher declares."""
        return under_test.publisher().capabilities


class PublisherConformance(PublisherSuite):
    """What every broker's publisher must do. A skip names the capability that the publisher does not declare."""

    # Arriving ---------------------------------------------------------------------------------------------------------

    def test_what_is_confirmed_has_arrived_once(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        sent = messages(there, 50)
        with world.publisher() as publisher:
            outcomes = publisher.publish(sent)
        assert kinds(outcomes) == {"Confirmed": 50}
        assert same(sent, world.under_test.arrived(there, 50))

    @pytest.mark.parametrize(
        "payload",
        [b"", b"\0", b"null", bytes(range(256)) * 3, "ünï-☃-😀".encode(), b"x" * 900_000],
        ids=["empty", "NUL", "null", "all-bytes", "unicode", "900-kB"],
    )
    def test_a_payload_arrives_byte_for_byte(self, world: PublisherWorld, payload: bytes) -> None:
        there = world.under_test.new_destination()
        with world.publisher() as publisher:
            (outcome,) = publisher.publish([message(there, payload=payload)])
        assert isinstance(outcome, Confirmed)
        assert [one.body for one in world.under_test.arrived(there, 1)] == [payload]

    def test_the_headers_and_the_key_arrive(self, world: PublisherWorld, capabilities: PublisherCapabilities) -> None:
        needs(capabilities.headers, "headers")
        there = world.under_test.new_destination()
        sent = message(there, headers='{"trace":"ünï-☃","empty":"","x-long":"%s"}' % ("y" * 4_000), key="ключ-☃")
        with world.publisher() as publisher:
            publisher.publish([sent])
        (arrived,) = world.under_test.arrived(there, 1)
        assert dict(to_headers(sent)).items() <= arrived.headers.items()
        assert arrived.key == "ключ-☃"

    def test_an_event_without_key_aggregate_and_headers_arrives(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        bare = message(there, key=None, aggregate_type=None, aggregate_id=None)
        with world.publisher() as publisher:
            (outcome,) = publisher.publish([bare])
        assert isinstance(outcome, Confirmed)
        (arrived,) = world.under_test.arrived(there, 1)
        assert arrived.key is None
        assert not {"aggregateType", "aggregateId"} & arrived.headers.keys()

    def test_the_longest_names_that_the_outbox_takes_arrive(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        long = message(there, key="k" * 255, aggregate_type="t" * 255, aggregate_id="i" * 255, content_type="c" * 255)
        with world.publisher() as publisher:
            (outcome,) = publisher.publish([long])
        assert isinstance(outcome, Confirmed)
        (arrived,) = world.under_test.arrived(there, 1)
        assert (arrived.key, arrived.headers["aggregateId"]) == ("k" * 255, "i" * 255)

    def test_an_event_from_before_1970_arrives(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        old = message(there)
        old = old._replace(occurred_at=old.occurred_at.replace(year=1901))
        with world.publisher() as publisher:
            (outcome,) = publisher.publish([old])
        assert isinstance(outcome, Confirmed)
        (arrived,) = world.under_test.arrived(there, 1)
        assert arrived.headers["occurredAt"] == "1901-01-02T03:04:05.678901Z"

    def test_one_event_goes_to_two_destinations(self, world: PublisherWorld) -> None:
        here, there = world.under_test.new_destination(), world.under_test.new_destination()
        one = message(here)
        two = one._replace(destination=there.name, routing_key=there.routing_key)
        with world.publisher() as publisher:
            outcomes = publisher.publish([one, two])
        assert kinds(outcomes) == {"Confirmed": 2}
        assert world.arrived_ids(here, 1) == world.arrived_ids(there, 1) == [one.event_id]

    def test_a_batch_larger_than_any_window_arrives_once(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        sent = messages(there, 5_000)
        with world.publisher() as publisher:
            outcomes = publisher.publish(sent)
        assert kinds(outcomes) == {"Confirmed": 5_000}
        assert same(sent, world.under_test.arrived(there, 5_000))

    def test_an_empty_batch_is_no_work(self, world: PublisherWorld) -> None:
        with world.publisher() as publisher:
            assert publisher.publish([]) == []

    # Order and positions ----------------------------------------------------------------------------------------------

    def test_events_of_one_key_arrive_in_the_order_of_the_list(
        self, world: PublisherWorld, capabilities: PublisherCapabilities
    ) -> None:
        needs(capabilities.pipelined_order, "pipelined_order")
        there = world.under_test.new_destination()
        with world.publisher() as publisher:
            for start in range(0, 600, 200):
                publisher.publish(messages(there, 600)[start : start + 200])
        arrived = world.under_test.arrived(there, 600)
        for key in {one.key for one in arrived}:
            numbers = [int(one.body) for one in arrived if one.key == key]
            assert numbers == sorted(numbers), key

    def test_the_confirmed_position_is_where_the_message_stands(
        self, world: PublisherWorld, capabilities: PublisherCapabilities
    ) -> None:
        needs(capabilities.positions, "positions")
        there = world.under_test.new_destination()
        sent = messages(there, 100)
        with world.publisher() as publisher:
            outcomes = publisher.publish(sent)
        confirmed = {one.event_id: outcome for one, outcome in zip(sent, outcomes, strict=True)}
        for one in world.under_test.arrived(there, 100):
            assert confirmed[one.headers["id"]] == Confirmed(one.partition, one.offset)

    # Refusals ---------------------------------------------------------------------------------------------------------

    def test_C004_only_the_refused_messages_of_a_batch_are_refused(self, world: PublisherWorld) -> None:
        """C004: the outcomes of a batch are per message, never for the whole call."""
        missing = world.under_test.missing_destination()
        if missing is None:
            pytest.skip("needs a missing destination, which this broker does not know")
        there = world.under_test.new_destination()
        sent = messages(there, 10)
        for at in (3, 7):
            sent[at] = sent[at]._replace(destination=missing.name, routing_key=missing.routing_key)
        with world.publisher() as publisher:
            outcomes = publisher.publish(sent)
        assert [type(outcome) for outcome in outcomes] == [Rejected if at in (3, 7) else Confirmed for at in range(10)]
        assert same([one for at, one in enumerate(sent) if at not in (3, 7)], world.under_test.arrived(there, 8))

    def test_a_missing_destination_is_retryable_and_works_once_it_exists(self, world: PublisherWorld) -> None:
        missing = world.under_test.missing_destination()
        if missing is None:
            pytest.skip("needs a missing destination, which this broker does not know")
        with world.publisher() as publisher:
            (refused,) = publisher.publish([message(missing)])
            assert isinstance(refused, Rejected)
            assert not refused.permanent
            assert refused.of_destination
            assert missing.name in refused.reason
            world.under_test.create(missing)
            deadline = time.monotonic() + 10  # a cluster may need a moment until all of it knows
            accepted: list[Outcome] = [refused]
            while accepted == [refused] and time.monotonic() < deadline:
                accepted = publisher.publish([message(missing)])
        assert kinds(accepted) == {"Confirmed": 1}

    def test_C060_a_message_that_is_too_large_is_refused_for_good_and_its_neighbours_flow(
        self, world: PublisherWorld
    ) -> None:
        """C060: an oversized event is neither retried for ever nor in the way of others."""
        size = world.under_test.too_large
        if size is None:
            pytest.skip("needs a size limit, which this broker does not have")
        there = world.under_test.new_destination()
        sent = messages(there, 40)
        sent[17] = sent[17]._replace(payload=b"x" * size)
        with world.publisher() as publisher:
            outcomes = publisher.publish(sent)
            assert kinds(publisher.publish([message(there)])) == {"Confirmed": 1}
        refused = outcomes.pop(17)
        assert isinstance(refused, Rejected)
        assert refused.permanent
        assert kinds(outcomes) == {"Confirmed": 39}
        # Neighbours may come twice: the publisher may have had to send them again, apart from the large one.
        assert set(world.arrived_ids(there, 40)) >= {one.event_id for one in sent} - {sent[17].event_id}

    def test_a_destination_without_a_name_is_refused_for_good(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        with world.publisher() as publisher:
            outcomes = publisher.publish(
                [message(there), message(there, destination="", routing_key="nobody-has-this")]
            )
        assert isinstance(outcomes[0], Confirmed)
        assert isinstance(outcomes[1], Rejected)
        assert outcomes[1].permanent

    # Life -------------------------------------------------------------------------------------------------------------

    def test_threads_may_share_a_publisher(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        batches = [messages(there, 100) for _ in range(4)]
        outcomes: list[Outcome] = []
        with world.publisher() as publisher:
            threads = [
                threading.Thread(target=lambda batch=batch: outcomes.extend(publisher.publish(batch)))
                for batch in batches
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        assert kinds(outcomes) == {"Confirmed": 400}
        assert same([one for batch in batches for one in batch], world.under_test.arrived(there, 400))

    def test_two_publishers_do_not_know_of_each_other(self, world: PublisherWorld) -> None:
        there = world.under_test.new_destination()
        with world.publisher() as one:
            with world.publisher() as other:
                assert kinds(other.publish([message(there)])) == {"Confirmed": 1}
            assert kinds(one.publish([message(there)])) == {"Confirmed": 1}

    def test_closing_twice_or_before_opening_is_no_error(self, world: PublisherWorld) -> None:
        publisher = world.under_test.publisher()
        publisher.close()
        publisher = world.under_test.publisher()
        publisher.open()
        publisher.close()
        publisher.close()


def kinds(outcomes: list[Outcome]) -> dict[str, int]:
    """How many of each kind; a failure then shows the reasons."""
    odd = [outcome for outcome in outcomes if not isinstance(outcome, Confirmed)]
    return Counter(type(outcome).__name__ for outcome in outcomes) if not odd else Counter(map(repr, outcomes))


def needs(there: bool, name: str) -> None:
    """Skip the test when the publisher does not declare the capability."""
    if not there:
        pytest.skip(f"needs the capability {name!r}, which this publisher does not declare")
