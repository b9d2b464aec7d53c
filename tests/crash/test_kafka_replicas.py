"""Kafka brokers that are restarted under load, and a topic that has too few of its replicas meanwhile.

These disturb the shared servers, so they run alone (marker ``fault``).
"""

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from pillarbox.event.destination import Topic
from pillarbox.ports import Confirmed, Rejected, Unavailable, Unknown
from pillarbox.publish.kafka import KafkaPublisher
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_order import in_order
from pillarbox.testing.conformance.publisher_world import message
from services.faults import ended, killed
from tests.crash.test_order_in_outages import disturbing, in_topic, leader, settled
from tests.ordered_pump import OrderedPump, copies


@pytest.mark.long
@pytest.mark.fault
@pytest.mark.timeout(180)
def test_a_restarted_broker_changes_no_order_and_loses_and_doubles_nothing(
    kafka_url: str, kafka_admin: AdminClient, make_topic: Callable[..., str]
) -> None:
    """An orderly stop hands the partitions over; the idempotent producer's own retries double nothing."""
    name = make_topic(1)
    with closing(open_publisher(kafka_url, deadline=10)) as publisher, OrderedPump(publisher, Topic(name)) as pump:
        with disturbing(ended, f"kafka{leader(kafka_admin, name)}"):
            pump.wait_for_confirms(1_000)
        pump.wait_for_confirms(1_000)
    arrived = in_topic(kafka_url, name)
    assert in_order(pump.sent, arrived)
    assert pump.odd == []
    assert copies(arrived) == 0
    settled(kafka_admin, name)


@pytest.mark.fault
@pytest.mark.timeout(180)
def test_a_topic_with_too_few_replicas_in_sync_waits_uncharged_and_the_others_go_on(
    kafka_url: str, kafka_admin: AdminClient, make_topic: Callable[..., str]
) -> None:
    """NOT_ENOUGH_REPLICAS: the broker answers for this topic alone, and who looks sees the replica that is missing."""
    strict, other = Topic(make_topic(1, min_insync_replicas="3")), Topic(make_topic(1))
    # Longer than the controller takes to see that a broker is gone: until then nobody knows that a replica is missing.
    with closing(KafkaPublisher.from_url(kafka_url, deadline=15)) as publisher:
        publisher.open()
        assert set(map(type, publisher.publish([message(strict), message(other)]))) == {Confirmed}
        with disturbing(killed, f"kafka{leader(kafka_admin, strict.name) % 3 + 1}"):
            deadline = time.monotonic() + 60
            while True:
                starved, fine = publisher.publish([message(strict), message(other)])
                assert not isinstance(starved, Rejected)
                assert not (isinstance(starved, Unknown) and starved.destination_healthy)
                if isinstance(starved, Unavailable) and starved.broker_answers:
                    break
                assert time.monotonic() < deadline, starved
            assert isinstance(fine, Confirmed)
            assert "too few replicas in sync" in starved.reason or "in-sync replicas" in starved.reason
            seen = {one.topic: one for one in publisher.replication()}[strict.name]
            assert (seen.replication_factor, seen.min_in_sync, seen.fewest_in_sync) == (3, 3, 2)
        deadline = time.monotonic() + 60
        while not isinstance(publisher.publish([message(strict)])[0], Confirmed):
            assert time.monotonic() < deadline
    settled(kafka_admin, strict.name)
    settled(kafka_admin, other.name)
