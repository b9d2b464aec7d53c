"""Old events in the table and in the broker, read by the newest consumer; newer ones go where the user says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pika
import pytest
from sqlalchemy.orm import Session

from pillarbox import Consumer, Destination, Event, Exchange, Outbox, Received, event_type, install, relay_for, upcaster
from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.memory import MemoryBroker
from pillarbox.consume.verdicts import Policy
from pillarbox.errors import NewerSchemaVersion
from pillarbox.store.engines import relay_engine
from tests.services_fixtures import MakeTopic

WAIT = 60.0


@event_type("order.created", version=1)
@dataclass(frozen=True)
class OrderOfOld:
    cents: int


@event_type("order.created", version=3)
@dataclass(frozen=True)
class OrderCreated:
    amount: Decimal
    currency: str


@upcaster(OrderCreated, version=1)
def cents_became_a_decimal(payload: dict[str, Any]) -> dict[str, Any]:
    return {"amount": f"{payload['cents'] / 100:.2f}"}


@upcaster(OrderCreated, version=2)
def all_were_euros(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "currency": "EUR"}


def old_and_new_events_arrive_as_new_ones(database: str, broker: str, to: str | Destination, source: str) -> None:
    """Two releases of the producer wrote; one event lies in the broker already and one in the table when the consumer
    of the newest release starts."""
    engine = relay_engine(database)
    install(engine)
    outbox = Outbox(bind=engine)

    def add(payload: object, **more: Any) -> None:
        with Session(engine) as session, session.begin():
            outbox.add(session, Event(payload, aggregate=("order", 1), **more), to=to)

    add(OrderOfOld(1990))
    with relay_for(database, broker).started() as relay:
        wait_for(relay, 1)
        seen: list[Received[OrderCreated]] = []
        consumer = Consumer("stock", database=consumer_engine(database), broker=broker, sources=[source])

        @consumer.on(OrderCreated)
        def reserve(event: Received[OrderCreated]) -> None:
            seen.append(event)

        add({"amount": "7.00"}, type="order.created", version=2)
        add(OrderCreated(Decimal("5.00"), "CHF"))
        with consumer.start() as running:
            running.wait_until(lambda: len(seen) == 3, WAIT)
    assert [(one.version, one.payload) for one in seen] == [
        (1, OrderCreated(Decimal("19.90"), "EUR")),
        (2, OrderCreated(Decimal("7.00"), "EUR")),
        (3, OrderCreated(Decimal("5.00"), "CHF")),
    ]
    engine.dispose()


def wait_for(relay: Any, sent: int) -> None:
    until = time.monotonic() + WAIT
    while relay.stats.sent < sent:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_through_postgresql_and_kafka(postgres_url: str, kafka_url: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    old_and_new_events_arrive_as_new_ones(postgres_url, kafka_url, topic, topic)


def test_through_mysql_and_rabbitmq(mysql_url: str, rabbitmq_url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        connection.channel().queue_declare("orders", durable=True)
    old_and_new_events_arrive_as_new_ones(mysql_url, rabbitmq_url, Exchange("", "orders"), "orders")


def newer(n: int) -> tuple[bytes, dict[str, str]]:
    headers = {"id": f"e-{n}", "eventType": "order.created", "schemaVersion": "4", "occurredAt": "2026-01-01T00:00:00Z"}
    return b'{"amount": "1.00", "currency": "EUR", "vat": 7}', headers


@pytest.fixture
def consumer(sqlite_url: str) -> Callable[..., tuple[Consumer, MemoryBroker, list[Any]]]:
    def make(**choices: Policy) -> tuple[Consumer, MemoryBroker, list[Any]]:
        engine = relay_engine(sqlite_url)
        install(engine, ["inbox"])
        engine.dispose()
        broker, seen = MemoryBroker(), list[Any]()
        broker.publish("orders", *newer(1))
        made = Consumer("stock", database=sqlite_url, broker=broker, sources=["orders"], **choices)  # type: ignore[arg-type]

        @made.on(OrderCreated)
        def reserve(event: Received[OrderCreated]) -> None:
            seen.append(event)

        return made, broker, seen

    return make


def test_an_unknown_newer_version_is_a_dead_letter_with_a_clear_reason(
    consumer: Callable[..., tuple[Consumer, MemoryBroker, list[Any]]],
) -> None:
    made, broker, seen = consumer()
    with made.start() as running:
        running.wait_until(lambda: made.stats.dead == 1, WAIT)
    (letter,) = broker.records("orders.stock.dead")
    reason = letter.headers["deadLetterReason"]
    assert "PB-017" in reason
    assert "has version 4 of 'order.created', and this consumer knows 3" in reason
    assert (letter.body, letter.headers["schemaVersion"], seen) == (newer(1)[0], "4", [])


def test_a_newer_version_may_be_skipped_and_is_counted(
    consumer: Callable[..., tuple[Consumer, MemoryBroker, list[Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    made, broker, seen = consumer(newer="skip")
    with made.start() as running:
        running.wait_until(lambda: made.stats.skipped == 1, WAIT)
    assert (seen, broker.records("orders.stock.dead")) == ([], [])
    assert "PB-017" in caplog.text


def test_a_newer_version_may_end_the_consumer_so_that_nothing_passes_before_it_is_deployed(
    consumer: Callable[..., tuple[Consumer, MemoryBroker, list[Any]]],
) -> None:
    made, broker, seen = consumer(newer="raise")
    with pytest.raises(NewerSchemaVersion):
        made.run()
    assert (seen, made.stats.acknowledged, broker.records("orders.stock.dead")) == ([], 0, [])
