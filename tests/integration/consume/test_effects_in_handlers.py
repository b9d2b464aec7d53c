"""Effects in the handlers of a real consumer: what each of their errors means for the event by default."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from pillarbox import Consumer, Received, RetryPolicy
from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.memory import MemoryBroker
from pillarbox.effects import EffectInDoubt, EffectPending, Effects, Lookup, Refused, idempotency_key
from pillarbox.ops.effects import Verdict, resolve
from pillarbox.store.install import install

WAIT = 30.0
HEADERS = {"id": "e-1", "eventType": "order.placed", "occurredAt": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("database_name", ["postgres", "mysql"], indirect=True)
def test_an_effect_in_doubt_is_a_dead_letter_and_its_replay_goes_on_with_the_verdict(database_url: str) -> None:
    engine, broker, called = consumer_engine(database_url), MemoryBroker(), list[str]()
    install(engine, ["inbox"])
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE paid (event_id VARCHAR(100), receipt INTEGER)"))
    effects = Effects("billing", engine)
    consumer = Consumer("billing", database=engine, broker=broker, sources=["orders"])

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

    broker.publish("orders", b"{}", HEADERS)
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.dead == 1, WAIT)
        (letter,) = broker.records("orders.billing.dead")
        assert "PB-044" in letter.headers["deadLetterReason"]
        assert letter.headers["deadLetterAttempts"] == "2", "the unanswered call, and the one not made"
        key = idempotency_key("billing", "e-1", "charge")
        with engine.begin() as connection:
            resolve(connection, key, Verdict("done", "anna", "found it at the provider's", '{"id": 7}'))
        broker.publish("orders", letter.body, HEADERS)
        running.wait_until(lambda: consumer.stats.applied == 1, WAIT)
    assert called == [key]
    with engine.connect() as connection:
        assert connection.execute(text("SELECT event_id, receipt FROM paid")).all() == [("e-1", 7)]
    engine.dispose()


@pytest.mark.parametrize("database_name", ["postgres"], indirect=True)
def test_what_was_refused_for_good_is_a_dead_letter_at_once(database_url: str) -> None:
    engine, broker = consumer_engine(database_url), MemoryBroker()
    install(engine, ["inbox"])
    effects = Effects("billing", engine)
    consumer = Consumer("billing", database=engine, broker=broker, sources=["orders"])

    def charge(_: str) -> object:
        raise Refused("card declined")

    @consumer.on("order.placed")
    def pay(event: Received[bytes]) -> None:
        effects.call(event, "charge", charge)

    broker.publish("orders", b"{}", HEADERS)
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.dead == 1, WAIT)
    (letter,) = broker.records("orders.billing.dead")
    assert letter.headers["deadLetterAttempts"] == "1"
    assert "card declined" in letter.headers["deadLetterReason"]
    engine.dispose()


@pytest.mark.parametrize("database_name", ["postgres"], indirect=True)
def test_a_lookup_that_finds_nothing_is_waited_for_and_not_given_up(database_url: str) -> None:
    """One attempt is allowed after the first: it comes when "nothing there" counts, and calls."""
    engine, broker, called = consumer_engine(database_url), MemoryBroker(), list[float]()
    install(engine, ["inbox"])
    effects = Effects("billing", engine)
    thrice = RetryPolicy(base=0.01, cap=0.01, max_attempts=3)
    consumer = Consumer("billing", database=engine, broker=broker, sources=["orders"], retry=thrice)
    asked: list[float] = []

    def charge(_: str) -> object:
        called.append(time.monotonic())
        if len(called) == 1:
            raise TimeoutError("no answer")
        return {"id": 7}

    def find(_: str) -> object:
        asked.append(time.monotonic())
        return None

    @consumer.on("order.placed")
    def pay(event: Received[bytes]) -> None:
        effects.call(event, "charge", charge, in_doubt=Lookup(find, wait=1.5))

    broker.publish("orders", b"{}", HEADERS)
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.applied == 1, WAIT)
    assert len(asked) == 2, "right after the first call, and when its answer counts"
    assert called[1] - called[0] >= 1.5
    assert consumer.stats.dead == 0
    engine.dispose()


def test_what_will_be_known_is_in_doubt_too_for_those_who_catch_it() -> None:
    assert issubclass(EffectPending, EffectInDoubt)
