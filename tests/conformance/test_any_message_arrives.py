"""Whatever an outbox accepts arrives through every broker as it was: bytes, names, headers and times."""

import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pillarbox.event.message import RESERVED_HEADERS, Message, from_wire
from pillarbox.ports import Confirmed
from pillarbox.testing.conformance.publisher_world import PublisherUnderTest, PublisherWorld, message
from tests.conformance.test_embedded_and_memory_publishers import Embedded
from tests.conformance.test_kafka_publisher import Kafka
from tests.conformance.test_nats_publisher import NatsBroker
from tests.conformance.test_rabbitmq_publisher import RabbitMQ

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60)
header_names = text.filter(lambda name: name not in RESERVED_HEADERS)
headers = st.dictionaries(header_names, text | st.just(""), min_size=1, max_size=4)
payloads = st.binary(max_size=300) | st.sampled_from([b"\0" * 1_000, b"x" * 300_000, b'{"n":12345678901234567890123}'])


def compact(given_headers: dict[str, str]) -> str:
    return json.dumps(given_headers, ensure_ascii=False, separators=(",", ":"))


@st.composite
def changes(draw: st.DrawFn) -> dict[str, object]:
    aggregate = draw(st.none() | st.tuples(text, text))
    return {
        "event_id": str(draw(st.uuids())),
        "event_type": draw(text),
        "schema_version": draw(st.integers(1, 2**31 - 1)),
        "aggregate_type": aggregate and aggregate[0],
        "aggregate_id": aggregate and aggregate[1],
        "key": draw(st.none() | text),
        "occurred_at": draw(st.datetimes(timezones=st.just(UTC))),
        "headers": draw(st.none() | headers.map(compact)),
        "content_type": draw(text),
        "payload": draw(payloads),
    }


@pytest.fixture
def embedded(tmp_path: Path) -> Embedded:
    return Embedded(tmp_path / "events.log")


@pytest.fixture
def kafka(kafka_url: str, kafka_admin: AdminClient, make_topic: Callable[..., str]) -> Kafka:
    return Kafka(kafka_url, kafka_admin, make_topic)


@pytest.fixture
def rabbitmq(rabbitmq_url: str) -> RabbitMQ:
    return RabbitMQ(rabbitmq_url)


def test_through_the_embedded_log(embedded: Embedded) -> None:
    check(embedded)


def test_through_kafka(kafka: Kafka) -> None:
    check(kafka)


def test_through_rabbitmq(rabbitmq: RabbitMQ) -> None:
    check(rabbitmq)


class TestNats(NatsBroker):
    def test_through_nats(self, under_test: PublisherUnderTest) -> None:
        check(under_test)


def check(under_test: PublisherUnderTest) -> None:
    """All examples go to one destination, which is read once at the end."""
    there = under_test.new_destination()
    sent: dict[str, Message] = {}

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(changes(), min_size=1, max_size=10))
    def publish(batch: list[dict[str, object]]) -> None:
        fresh = [one for one in batch if one["event_id"] not in sent]
        made = {str(one["event_id"]): message(there, **one) for one in fresh}
        outcomes = publisher.publish(list(made.values()))
        assert all(isinstance(outcome, Confirmed) for outcome in outcomes), outcomes
        sent.update(made)

    with PublisherWorld(under_test).publisher() as publisher:
        publish()
    arrived = under_test.arrived(there, len(sent))
    assert len(arrived) == len(sent)
    for one in arrived:
        read = from_wire(one.headers, one.body, source=there.name, key=one.key)
        assert read == sent[read.event_id]._replace(routing_key=None)
