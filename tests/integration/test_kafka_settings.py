"""Options of the URL reach the client: compression, sizes, and what the client says to nonsense."""

from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from pillarbox.errors import BadUrl
from pillarbox.event.destination import Topic
from pillarbox.ports import Confirmed
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_world import message
from tests.kafka_broker import KafkaBroker
from tests.servers import unique

pytestmark = pytest.mark.services

BODY = b'{"sku":"4711","text":"the same again and again"}' * 20


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_is_compressed_lies_small_on_the_broker_and_is_read_as_it_was(lone_kafka: KafkaBroker, codec: str) -> None:
    sizes = []
    for chosen in ("none", codec):
        there = Topic(lone_kafka.topic(unique("t")))
        sent = [message(there, payload=BODY) for _ in range(200)]
        url = f"{lone_kafka.url}?compression.type={chosen}"
        with closing(open_publisher(url, deadline=10)) as publisher:
            for call in (publisher.publish, publisher.publish_in_order):
                assert {type(outcome) for outcome in call(sent[:100])} == {Confirmed}
                del sent[:100]
        sizes.append(lone_kafka.log_of(there.name).stat().st_size)
        assert bodies(lone_kafka, there.name) == [BODY] * 200
    plain, compressed = sizes
    assert plain > 200 * len(BODY)
    assert compressed < plain / 5


def test_PB_002_a_codec_that_does_not_exist_is_a_bad_URL(lone_kafka: KafkaBroker) -> None:
    with pytest.raises(BadUrl, match="zip"):
        open_publisher(f"{lone_kafka.url}?compression.type=zip", deadline=5)


def bodies(broker: KafkaBroker, topic: str) -> list[bytes]:
    """All in the topic's only partition."""
    with closing(Consumer({"bootstrap.servers": broker.direct, "group.id": "reader", "log_level": 0})) as consumer:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < end:
            records = consumer.consume(end, timeout=10)
            assert records, f"{end - len(found)} records did not come"
            found += [one.value() for one in records]
        return found
