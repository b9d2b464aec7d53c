"""RabbitMQ breaks under the consumer: connections, channels, queues. Nothing is lost, nothing applied twice."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import pytest
from sqlalchemy import Engine, make_url
from sqlalchemy.orm import Session

from pillarbox import Consumer, Received, RetryPolicy
from pillarbox.consume.engine import consumer_engine
from pillarbox.consume.rabbitmq import RabbitSource
from pillarbox.errors import AccessRefused, BadConsumer, BrokerUnavailable
from pillarbox.lab.proxy import FaultProxy, fault_proxy
from pillarbox.store.install import install
from pillarbox.testing.conformance.consumer_world import ConsumerWorld, Thing, write_effect
from tests.conformance.test_consumer_rabbitmq import Rabbit


@dataclass
class BehindProxy:
    """The consumer reaches RabbitMQ through a proxy, the test reaches it directly."""

    world: ConsumerWorld
    proxy: FaultProxy
    url: str
    rabbit: Rabbit

    def consumer(self, options: str = "", **changes: Any) -> Consumer:
        return self.world.consumer_of_things(broker=self.url + options, **changes)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = consumer_engine(f"sqlite:///{tmp_path / 'inbox.db'}")
    install(engine, ["inbox"])
    yield engine
    engine.dispose()


@pytest.fixture
def behind(rabbitmq_url: str, engine: Engine) -> Iterator[BehindProxy]:
    url = make_url(rabbitmq_url)
    rabbit = Rabbit(rabbitmq_url)
    with fault_proxy(url.host or "", url.port or 0) as proxy:
        through = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        yield BehindProxy(ConsumerWorld(rabbit, engine), proxy, through, rabbit)
    rabbit.connection.close()


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = RetryPolicy(base=0.01, cap=0.1, max_attempts=2**31)
    monkeypatch.setattr("pillarbox.consume.plan.OUTAGE_RETRY", quick)
    monkeypatch.setattr("pillarbox.consume.rabbitmq.subscription.OUTAGE_RETRY", quick)


def test_a_lost_connection_is_opened_again_and_old_deliveries_are_never_acknowledged_on_it(behind: BehindProxy) -> None:
    consumer, entered, go_on = behind.world.consumer(broker=behind.url), threading.Event(), threading.Event()

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        write_effect(session, event.id, str(event.payload.n))
        if event.payload.n == 1 and not entered.is_set():
            entered.set()
            assert go_on.wait(10)

    behind.world.send(*[behind.world.message(n) for n in range(5)])
    with consumer.start() as running:
        assert entered.wait(10)
        behind.proxy.cut()  # what was fetched, and what is being handled, goes back to the queue
        time.sleep(0.1)
        go_on.set()
        running.wait_until(lambda: len(behind.world.notes()) == 5, 20)
    behind.world.assert_all_acknowledged(consumer)
    assert behind.world.notes() == ["0", "1", "2", "3", "4"]
    assert consumer.stats.duplicates >= 1


def test_heartbeats_go_on_while_a_handler_takes_longer_than_they_allow(behind: BehindProxy) -> None:
    consumer = behind.world.consumer(broker=f"{behind.url}?heartbeat=1")

    @consumer.on("thing.happened")
    def handle(event: Received[Thing], session: Session) -> None:
        time.sleep(3.5)  # the broker drops a silent client after 2 s
        write_effect(session, event.id)

    behind.world.send(behind.world.message())
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.acknowledged == 1, 20)
    behind.world.assert_all_acknowledged(consumer)
    assert (consumer.stats.duplicates, consumer.stats.applied) == (0, 1)


def test_an_outage_of_the_broker_is_waited_out(behind: BehindProxy) -> None:
    consumer = behind.consumer()
    with consumer.start() as running:
        behind.proxy.refuse()
        behind.world.send(behind.world.message(1))
        time.sleep(0.3)
        behind.proxy.heal()
        running.wait_until(lambda: consumer.stats.acknowledged == 1, 20)
    assert behind.world.notes() == ["1"]


def test_a_queue_that_is_deleted_and_made_again_is_read_again(behind: BehindProxy) -> None:
    consumer, source = behind.consumer(), behind.world.source
    with consumer.start() as running:
        behind.rabbit.channel.queue_delete(source)
        time.sleep(0.2)
        behind.rabbit.channel.queue_declare(source, durable=True)
        behind.rabbit.channel.queue_bind(source, source)
        behind.world.send(behind.world.message(1))
        running.wait_until(lambda: consumer.stats.acknowledged == 1, 20)


def test_a_dead_letter_is_not_acknowledged_before_its_queue_has_it(behind: BehindProxy) -> None:
    """The queue refuses (length limit 1, reject-publish) until somebody makes room."""
    consumer = behind.consumer()
    dead = f"{behind.world.source}.{consumer.name}.dead"
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    behind.rabbit.channel.queue_declare(dead, durable=True, arguments=limits)
    behind.rabbit.channel.basic_publish("", dead, b"in the way")
    time.sleep(0.1)
    behind.world.send(behind.world.message(payload=b"{"))
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.broker_away >= 2, 20)
        assert (consumer.stats.dead, consumer.stats.acknowledged) == (0, 0)
        behind.rabbit.channel.queue_purge(dead)
        running.wait_until(lambda: consumer.stats.acknowledged == 1, 20)
    (letter,) = behind.rabbit.dead_letters(dead, 1)
    assert letter.body == b"{"


def test_a_dead_letter_queue_that_was_deleted_is_made_again(behind: BehindProxy) -> None:
    consumer = behind.consumer()
    dead = f"{behind.world.source}.{consumer.name}.dead"
    with consumer.start() as running:
        behind.world.send(behind.world.message(payload=b"{"))
        running.wait_until(lambda: consumer.stats.dead == 1, 20)
        behind.rabbit.channel.queue_delete(dead)
        behind.world.send(behind.world.message(payload=b"["))
        running.wait_until(lambda: consumer.stats.dead == 2, 20)
    (letter,) = behind.rabbit.dead_letters(dead, 1)
    assert letter.body == b"["


def test_dead_letters_keep_their_properties_and_the_queue_has_the_arguments_that_were_asked_for(
    behind: BehindProxy,
) -> None:
    quorum = {"dead_queue_arguments": {"x-queue-type": "quorum"}}
    consumer = behind.world.consumer_of_things(broker=behind.url, options=quorum)
    properties = pika.BasicProperties(
        content_type="text/x-strange",
        message_id="m-1",
        expiration="60000",
        headers={"n": 5, "raw": b"\xff", "none": None},
    )
    behind.rabbit.channel.basic_publish("", behind.world.source, b"foreign", properties)
    with consumer.start() as running:
        running.wait_until(lambda: consumer.stats.dead == 1, 20)
    dead = f"{behind.world.source}.{consumer.name}.dead"
    behind.rabbit.channel.queue_declare(dead, durable=True, arguments={"x-queue-type": "quorum"})
    _, kept, body = behind.rabbit.channel.basic_get(dead, auto_ack=True)
    assert (body, kept.content_type, kept.message_id, kept.expiration) == (b"foreign", "text/x-strange", "m-1", None)
    assert (kept.delivery_mode, kept.headers["n"]) == (2, 5)
    assert "PB-016" in kept.headers["deadLetterReason"]


# At the start ---------------------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_at_the_start_is_a_clear_error(behind: BehindProxy) -> None:
    behind.proxy.refuse()
    with pytest.raises(BrokerUnavailable, match="PB-005"):
        behind.consumer().run()


@pytest.mark.parametrize("change", [{"password": "wrong-s3cr3t"}, {"database": "no-such-vhost"}])
def test_refused_access_is_a_clear_error(behind: BehindProxy, change: dict[str, str]) -> None:
    url = make_url(behind.url).set(**change).render_as_string(hide_password=False)
    with pytest.raises(AccessRefused, match="PB-008") as caught:
        behind.world.consumer_of_things(broker=url).run()
    assert "s3cr3t" not in str(caught.value)


def test_a_frozen_broker_does_not_hold_up_the_end(behind: BehindProxy) -> None:
    consumer = behind.consumer()
    with consumer.start():
        behind.proxy.freeze()
        started = time.monotonic()
        consumer.stop()
    assert time.monotonic() - started < 9
    behind.proxy.thaw()


def test_a_dead_letter_queue_with_too_long_a_name_is_refused_before_anything_is_read() -> None:
    with pytest.raises(BadConsumer, match="Shorten"):
        RabbitSource.from_url("amqp://nowhere", "c" * 100, ["q" * 200])
