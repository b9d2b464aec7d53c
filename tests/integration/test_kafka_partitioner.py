"""A key lands on the partition that Kafka's Java client picks: relays, Debezium and Java services may share a topic."""

from collections.abc import Callable
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from pillarbox.embedded.murmur2 import partition_of_key
from pillarbox.event.destination import Topic
from pillarbox.ports import Confirmed
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message
from tests.kafka_java import java_produce
from tests.servers import bootstrap_of

PARTITIONS = 12
KEYS = [
    "",
    " ",
    "0",
    "order-7",
    "Zürich",
    "naïve café",
    "ключ",
    "訂單",
    "🛒🛒",
    "e\u0301",
    "\u00e9",
    "مفتاح",
    "x" * 255,
    *(f"k-{n}" for n in range(300)),
    *(str(n * 7_919) for n in range(300)),
    *(f"{n:x}-ß-{n * n:x}" for n in range(200)),
]


def test_a_key_lands_on_the_partition_that_javas_partitioner_picks(
    kafka_url: str, make_topic: Callable[..., str]
) -> None:
    name = make_topic(PARTITIONS)
    java_produce(bootstrap_of(kafka_url), name, dict.fromkeys(KEYS, "from Java"))
    javas = places(kafka_url, name)
    assert javas.keys() == set(KEYS)
    assert len(set(javas.values())) == PARTITIONS
    batch = [message(Topic(name), key=key) for key in KEYS]
    with closing(open_publisher(kafka_url, deadline=15)) as publisher:
        for publish in (publisher.publish, publisher.publish_in_order):
            outcomes = publish(batch)
            ours = {
                one.key: outcome.partition
                for one, outcome in zip(batch, outcomes, strict=True)
                if isinstance(outcome, Confirmed)
            }
            assert ours == javas
    assert {key: partition_of_key(key, PARTITIONS) for key in KEYS} == javas, "what priming and the embedded log assume"


def places(url: str, topic: str) -> dict[str, int]:
    """The partition of each key in the topic."""
    settings = {"bootstrap.servers": bootstrap_of(url), "group.id": "reader", "log_level": 0}
    with closing(Consumer(settings)) as consumer:
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in range(PARTITIONS)}
        consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        found: dict[str, int] = {}
        left = sum(ends.values())
        while left:
            records = consumer.consume(min(1_000, left), timeout=10)  # waits for that many
            assert records, f"{left} records did not come"
            left -= len(records)
            found |= {one.key().decode(): one.partition() for one in records}
        return found
