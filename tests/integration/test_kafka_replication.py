"""What the cluster says of the topics that events go to: replicas, how many must have an event, how many keep up."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from pillarbox import Event, Outbox, install
from pillarbox.errors import BrokerUnavailable
from pillarbox.event.destination import Topic
from pillarbox.ports import Confirmed
from pillarbox.publish.kafka import KafkaPublisher
from pillarbox.publish.kafka.replication import TopicReplication, observe_topics
from pillarbox.testing.conformance.publisher_world import message
from pillarbox.wiring import relay_for
from tests.kafka_broker import KafkaBroker
from tests.servers import bootstrap_of, create_topic, unique

LOG = "pillarbox.publish.kafka"


@pytest.fixture
def lonely_topic(kafka_admin: AdminClient) -> Iterator[str]:
    """Of one replica."""
    name = create_topic(kafka_admin, 2, 1, {})
    yield name
    kafka_admin.delete_topics([name], operation_timeout=20)[name].result(30)


def test_replicas_what_they_must_be_and_what_they_are_is_known_of_each_topic(
    kafka_url: str, make_topic: Callable[..., str], lonely_topic: str
) -> None:
    safe, weak = make_topic(3), make_topic(3, min_insync_replicas="1")
    found = {one.topic: one for one in observe_topics(kafka_url, [safe, weak, lonely_topic, unique("missing")])}
    assert found.keys() == {safe, weak, lonely_topic}
    assert (found[safe].replication_factor, found[safe].min_in_sync, found[safe].fewest_in_sync) == (3, 2, 3)
    assert [set(found[safe].in_sync[number]) for number in range(3)] == [{1, 2, 3}] * 3
    assert found[safe].warning() is None
    assert (found[weak].replication_factor, found[weak].min_in_sync, found[weak].acknowledged_by) == (3, 1, 1)
    assert "alone would acknowledge" in (found[weak].warning() or "")
    assert (found[lonely_topic].replication_factor, found[lonely_topic].acknowledged_by) == (1, 1)
    assert "single replica" in (found[lonely_topic].warning() or "")


def test_a_publisher_warns_once_of_a_topic_where_one_replica_alone_would_acknowledge(
    kafka_url: str, make_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    safe, weak = make_topic(3), make_topic(3, min_insync_replicas="1")
    with caplog.at_level(logging.INFO, LOG), closing(KafkaPublisher.from_url(kafka_url, deadline=10)) as publisher:
        publisher.open()
        for call in (publisher.publish, publisher.publish_in_order, publisher.publish):
            outcomes = call([message(Topic(safe)), message(Topic(weak))])
            assert all(isinstance(outcome, Confirmed) for outcome in outcomes)
        wait_for(lambda: len([one for one in caplog.messages if "in sync now" in one]) == 2)
        seen = {one.topic: one for one in publisher.replication()}
    assert seen.keys() == {safe, weak}
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warnings == [seen[weak].warning()]


def test_a_relay_tells_of_it_and_writes_topic_partition_and_offset_into_the_receipt(
    kafka_url: str, make_topic: Callable[..., str], sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    weak, other = make_topic(3, min_insync_replicas="1"), make_topic(1)
    engine = create_engine(sqlite_url)
    install(engine)
    outbox = Outbox(bind=engine)
    with Session(engine) as session, session.begin():
        for number in range(30):
            event = Event({"n": number}, type="thing.happened", aggregate=("thing", number))
            outbox.add(session, event, to=Topic(other if number % 3 == 0 else weak))
    with caplog.at_level(logging.INFO, LOG):
        relay_for(sqlite_url, kafka_url).run(until_empty=True)
        wait_for(lambda: "alone would acknowledge" in caplog.text)
    columns = "event_id, destination, broker_partition, broker_offset"
    with engine.connect() as connection:
        rows = connection.execute(text(f"SELECT {columns} FROM outbox_status WHERE status = 'SENT'")).all()
    told = {(topic, place, offset): event_id for event_id, topic, place, offset in rows}
    assert len(told) == 30
    assert told == ids_in(kafka_url, weak, other)
    engine.dispose()


def test_who_may_not_ask_for_the_configuration_still_learns_the_rest(lone_kafka: KafkaBroker) -> None:
    topic = lone_kafka.topic(unique("t"), 2)
    lone_kafka.allow_alice(topic)
    url = f"kafka://alice:wonderland@{lone_kafka.sasl_address}?security.protocol=SASL_PLAINTEXT"
    assert observe_topics(url, [topic]) == (TopicReplication(topic, {0: (1,), 1: (1,)}, {0: (1,), 1: (1,)}, None),)


def test_PB_005_a_cluster_that_is_away_is_named(lone_kafka: KafkaBroker) -> None:
    lone_kafka.proxy.refuse()
    with pytest.raises(BrokerUnavailable, match=str(lone_kafka.proxy.port)):
        observe_topics(lone_kafka.url, ["t"], deadline=1)


@pytest.mark.parametrize(
    ("replicas", "needed", "acknowledged_by"),
    [(3, 2, 2), (3, 1, 1), (3, 5, 3), (2, 2, 2), (1, 2, 1), (1, None, 1), (3, None, None)],
)
def test_one_replica_alone_is_what_is_warned_of(replicas: int, needed: int | None, acknowledged_by: int | None) -> None:
    brokers = tuple(range(replicas))
    seen = TopicReplication("t", {0: brokers}, {0: brokers[:1]}, needed)
    assert seen.acknowledged_by == acknowledged_by
    assert (seen.warning() is None) == (acknowledged_by != 1)


def ids_in(url: str, *topics: str) -> dict[tuple[str, int, int], str]:
    """The event id of each record, by topic, partition and offset."""
    settings = {"bootstrap.servers": bootstrap_of(url), "group.id": "reader", "log_level": 0}
    with closing(Consumer(settings)) as consumer:
        places = [
            TopicPartition(topic, number, 0)
            for topic in topics
            for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ]
        left = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
        consumer.assign(places)
        found: dict[tuple[str, int, int], str] = {}
        while left > len(found):
            records = consumer.consume(left, timeout=10)
            assert records, f"{left - len(found)} records did not come"
            found |= {
                (one.topic(), one.partition(), one.offset()): dict(one.headers())["id"].decode() for one in records
            }
        return found


def wait_for(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
