"""Kafka's publisher with the headers of CloudEvents in binary mode: the same contract for what a consumer reads."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AdminClient
from sqlalchemy import create_engine

from pillarbox import Consumer, Received, event_type, install
from pillarbox.event.message import from_wire
from pillarbox.ports import Confirmed
from pillarbox.testing.conformance.publisher_world import message
from tests.conformance.test_kafka_publisher import Kafka
from tests.servers import unique

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@event_type("thing.happened", version=1)
@dataclass(frozen=True, slots=True)
class Happened:
    n: int


@pytest.fixture
def kafka(kafka_url: str, kafka_admin: AdminClient, make_topic: Callable[..., str]) -> Kafka:
    return Kafka(f"{kafka_url}?cloudevents.source=/shop", kafka_admin, make_topic)


@pytest.mark.parametrize("call", ["publish", "publish_in_order"])
def test_the_record_is_a_CloudEvent_whose_data_is_the_payload(kafka: Kafka, call: str) -> None:
    there = kafka.new_destination()
    sent = message(there, headers=json.dumps({"traceparent": TRACE, "tenant": "a"}), payload=b"\x00\xff{}")
    with closing(kafka.publisher()) as publisher:
        assert isinstance(getattr(publisher, call)([sent])[0], Confirmed)
    (arrived,) = kafka.arrived(there, 1)
    assert (arrived.body, arrived.key) == (sent.payload, sent.key)
    assert arrived.headers == {
        "ce_specversion": "1.0",
        "ce_id": sent.event_id,
        "ce_source": "/shop",
        "ce_type": "thing.happened",
        "ce_time": "2026-01-02T03:04:05.678901Z",
        "ce_subject": "7",
        "ce_schemaversion": "1",
        "ce_aggregatetype": "thing",
        "ce_traceparent": TRACE,
        "traceparent": TRACE,
        "content-type": "application/json",
        "tenant": "a",
    }
    read = from_wire(arrived.headers, arrived.body, source=there.name, key=arrived.key)
    assert read._replace(headers=None, routing_key=sent.routing_key) == sent._replace(headers=None)


def test_without_the_option_the_headers_are_those_of_the_outbox_event_router(
    kafka_url: str, kafka_admin: AdminClient, make_topic: Callable[..., str]
) -> None:
    plain = Kafka(kafka_url, kafka_admin, make_topic)
    there = plain.new_destination()
    sent = message(there, headers=json.dumps({"traceparent": TRACE, "tracestate": "vendor=1"}))
    with closing(plain.publisher()) as publisher:
        publisher.publish([sent])
    (arrived,) = plain.arrived(there, 1)
    assert arrived.headers == {
        "id": sent.event_id,
        "eventType": "thing.happened",
        "schemaVersion": "1",
        "occurredAt": "2026-01-02T03:04:05.678901Z",
        "contentType": "application/json",
        "aggregateType": "thing",
        "aggregateId": "7",
        "traceparent": TRACE,
        "tracestate": "vendor=1",
    }


def test_a_consumer_with_the_same_URL_applies_it_once(kafka: Kafka, sqlite_url: str) -> None:
    there = kafka.new_destination()
    engine = create_engine(sqlite_url)
    install(engine)
    consumer = Consumer(unique("c"), database=engine, broker=kafka.url, sources=[there.name])
    seen: list[tuple[int, str, str]] = []

    @consumer.on(Happened)
    def note(event: Received[Happened]) -> None:
        seen.append((event.payload.n, event.headers["ce_source"], event.id))

    sent = message(there)
    with closing(kafka.publisher()) as publisher, consumer.start() as running:
        publisher.publish([sent, sent])
        running.wait_until(lambda: consumer.stats.duplicates == 1, timeout=30)
    assert seen == [(1, "/shop", sent.event_id)]
    engine.dispose()
