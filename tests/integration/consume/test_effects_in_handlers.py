"""Effects in the handlers of a real consumer: what is in doubt ends as a dead letter, whose replay has the verdict."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from pillarbox import Consumer, Received
from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.memory import MemoryBroker
from pillarbox.effects import EffectInDoubt, Effects, idempotency_key
from pillarbox.ops.effects import Verdict, resolve
from pillarbox.store.install import install

WAIT = 30.0


@pytest.mark.parametrize("database_name", ["postgres", "mysql"], indirect=True)
def test_an_effect_in_doubt_is_a_dead_letter_and_its_replay_goes_on_with_the_verdict(database_url: str) -> None:
    engine, broker, called = consumer_engine(database_url), MemoryBroker(), list[str]()
    install(engine, ["inbox"])
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE paid (event_id VARCHAR(100), receipt INTEGER)"))
    effects = Effects("billing", engine)
    consumer = Consumer(
        "billing",
        database=engine,
        broker=broker,
        sources=["orders"],
        on_error={TimeoutError: "retry", EffectInDoubt: "give up"},
    )

    def charge(key: str) -> object:
        called.append(key)
        raise TimeoutError("no answer")

    @consumer.on("order.placed")
    def pay(event: Received[bytes], session: Session) -> None:
        receipt = effects.call(event, "charge", charge)
        session.execute(
            text("INSERT INTO paid (event_id, receipt) VALUES (:id, :receipt)"),
            {"id": event.id, "receipt": receipt["id"]},
        )

    headers = {"id": "e-1", "eventType": "order.placed", "occurredAt": "2026-01-01T00:00:00Z"}
    broker.publish("orders", b"{}", headers)
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.dead == 1, WAIT)
        (letter,) = broker.records("orders.billing.dead")
        assert "PB-044" in letter.headers["deadLetterReason"]
        key = idempotency_key("billing", "e-1", "charge")
        with engine.begin() as connection:
            resolve(connection, key, Verdict("done", "anna", "found it at the provider's", '{"id": 7}'))
        broker.publish("orders", letter.body, headers)
        running.wait_until(lambda: consumer.stats.applied == 1, WAIT)
    assert called == [key]
    with engine.connect() as connection:
        assert connection.execute(text("SELECT event_id, receipt FROM paid")).all() == [("e-1", 7)]
    engine.dispose()
