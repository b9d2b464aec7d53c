"""Brokers that die or freeze in the middle of a key: what comes later never overtakes, and nothing is lost.

These disturb the shared servers, so they run alone (marker ``fault``).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pika
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from pillarbox.event.destination import Topic
from pillarbox.ports import Rejected
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_order import in_order
from pillarbox.testing.conformance.publisher_world import Arrived
from services.faults import killed, stopped
from services.process import ServiceError
from tests.ordered_pump import OrderedPump, copies
from tests.rabbitmq_broker import QUEUE, queue_that_survives
from tests.servers import bootstrap_of


@pytest.mark.fault
@pytest.mark.timeout(180)
@pytest.mark.parametrize("fault", [killed, stopped], ids=["killed", "frozen"])
def test_a_lost_leader_changes_no_order(
    kafka_url: str,
    kafka_admin: AdminClient,
    make_topic: Callable[..., str],
    fault: Callable[..., "Iterator[None]"],
    record_property: Callable[[str, object], None],
) -> None:
    name = make_topic(1)
    with closing(open_publisher(kafka_url, deadline=10)) as publisher, OrderedPump(publisher, Topic(name)) as pump:
        with disturbing(fault, f"kafka{leader(kafka_admin, name)}"):
            pump.wait_for_confirms(1_000)
        pump.wait_for_confirms(1_000)
    assert not any(isinstance(outcome, Rejected) for outcome in pump.odd)
    arrived = in_topic(kafka_url, name)
    assert in_order(pump.sent, arrived)
    record_property("copies", f"{copies(arrived)} of {len(pump.sent)}, {pump.outcomes}")
    settled(kafka_admin, name)


@pytest.mark.fault
@pytest.mark.timeout(180)
def test_an_outage_of_kafka_changes_no_order(
    kafka_url: str,
    kafka_admin: AdminClient,
    make_topic: Callable[..., str],
    record_property: Callable[[str, object], None],
) -> None:
    """Too few replicas in sync: the client's own retries end with our deadline, and a new producer goes on."""
    name = make_topic(1)
    others = [number for number in (1, 2, 3) if number != leader(kafka_admin, name)]
    with closing(open_publisher(kafka_url, deadline=6)) as publisher, OrderedPump(publisher, Topic(name)) as pump:
        with disturbing(killed, *(f"kafka{number}" for number in others)):
            pump.wait_for_trouble()
        pump.wait_for_confirms(1_000, seconds=90)
    assert not any(isinstance(outcome, Rejected) for outcome in pump.odd)
    arrived = in_topic(kafka_url, name)
    assert in_order(pump.sent, arrived)
    record_property("copies", f"{copies(arrived)} of {len(pump.sent)}, {pump.outcomes}")
    settled(kafka_admin, name)


@pytest.mark.fault
@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", [killed, stopped], ids=["killed", "frozen"])
def test_a_lost_rabbitmq_node_changes_no_order(rabbitmq_url: str, fault: Callable[..., "Iterator[None]"]) -> None:
    queue_that_survives(rabbitmq_url)
    with closing(open_publisher(rabbitmq_url, deadline=4)) as publisher, OrderedPump(publisher, QUEUE) as pump:
        with disturbing(fault, "rabbitmq"):
            pump.wait_for_trouble()
        pump.wait_for_confirms(1_000)
    assert not any(isinstance(outcome, Rejected) for outcome in pump.odd)
    assert in_order(pump.sent, in_queue(rabbitmq_url))


# Helpers ------------------------------------------------------------------------------------------------------------


@contextmanager
def disturbing(fault: Callable[..., "Iterator[None]"], *parts: str) -> Iterator[None]:
    try:
        with fault(*parts):
            yield
    except ServiceError as error:
        pytest.skip(f"needs the servers of `python -m services up`: {error}")


def leader(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)


def settled(admin: AdminClient, topic: str) -> None:
    """Wait until all replicas are in sync: the next test begins with a whole cluster."""
    deadline = time.monotonic() + 60
    while len(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs) < 3:
        assert time.monotonic() < deadline, "the cluster did not become whole again"
        time.sleep(0.1)


def in_topic(url: str, topic: str) -> list[Arrived]:
    """All in the topic's only partition."""
    settings = {"bootstrap.servers": bootstrap_of(url), "group.id": "reader", "log_level": 0}
    with closing(Consumer(settings)) as consumer:
        end = end_of(consumer, TopicPartition(topic, 0))
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Arrived] = []
        deadline = time.monotonic() + 30
        while len(found) < end and time.monotonic() < deadline:
            for one in consumer.consume(1_000, timeout=0.2):
                headers = {name: value.decode() for name, value in one.headers()}
                found.append(Arrived(headers, one.value(), one.key().decode()))
        return found


def end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """Asked again while a broker that was frozen still believes that it leads."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=20)[1])
        except KafkaException:
            assert time.monotonic() < deadline, "no broker says that it leads the partition"
            time.sleep(0.2)


def in_queue(url: str) -> list[Arrived]:
    """All in the queue, taken out of it."""
    found: list[Arrived] = []
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        for _, properties, body in channel.consume("events", auto_ack=True, inactivity_timeout=1):
            if body is None:
                break
            headers = dict(properties.headers)
            found.append(Arrived(headers, body, headers.pop("key", None)))
        channel.close()
    return found
