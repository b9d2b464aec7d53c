"""RabbitMQ breaks while messages are put back or wait: none is lost, and nobody waits for ever."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pika
import pytest
from sqlalchemy import make_url

from pillarbox.consume.rabbitmq import RabbitSource
from pillarbox.errors import BadConsumer, BrokerUnavailable
from pillarbox.lab.proxy import FaultProxy, fault_proxy
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Incoming
from pillarbox.testing.conformance.source_world import SourceWorld, fetch, ids, nothing_comes
from tests.conformance.test_consumer_rabbitmq import Rabbit


@dataclass
class Behind:
    """The consumer's broker behind a proxy, and the same one for the test."""

    world: SourceWorld
    proxy: FaultProxy
    url: str
    rabbit: Rabbit

    def member(self, **options: Any) -> RabbitSource:
        source = RabbitSource.from_url(self.url, self.world.consumer, [self.world.source], **options)
        source.open()
        return source

    @property
    def retry_queue(self) -> str:
        return f"{self.world.source}.{self.world.consumer}.retry"


@pytest.fixture
def behind(rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behind]:
    quick = RetryPolicy(base=0.01, cap=0.1, max_attempts=2**31)
    monkeypatch.setattr("pillarbox.consume.rabbitmq.subscription.OUTAGE_RETRY", quick)
    url = make_url(rabbitmq_url)
    rabbit = Rabbit(rabbitmq_url)
    with fault_proxy(url.host or "", url.port or 0) as proxy:
        through = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
        yield Behind(SourceWorld(rabbit), proxy, through, rabbit)
    rabbit.connection.close()


def test_a_message_is_not_put_back_while_the_broker_is_away_and_comes_again_afterwards(behind: Behind) -> None:
    member = behind.member(deadline=2.0)
    (event_id,) = behind.world.send(behind.world.message())
    (incoming,) = fetch(member, 1)
    behind.proxy.refuse()
    with pytest.raises(BrokerUnavailable):
        member.put_back(incoming, 0.1, "later", 1)
    behind.proxy.heal()
    (again,) = fetch(member, 1)
    assert (ids([again]), again.redelivered, member.holds(incoming)) == ([event_id], True, False)
    member.put_back(again, 0.1, "later", 1)
    member.acknowledge([again])
    (third,) = fetch(member, 1)
    assert third.attempts == 1
    member.close()


def test_a_lost_answer_puts_a_message_back_twice_rather_than_not_at_all(behind: Behind) -> None:
    member = behind.member(deadline=2.0)
    (event_id,) = behind.world.send(behind.world.message())
    (incoming,) = fetch(member, 1)
    member.put_back(incoming, 0.0, "opens the connection", 1)
    behind.proxy.lose_answers()
    with pytest.raises(BrokerUnavailable):
        member.put_back(incoming, 0.0, "nobody hears of it", 2)
    behind.proxy.heal()
    held: dict[int, Incoming] = {}
    deadline = time.monotonic() + 20
    while set(held) != {0, 1, 2}:  # the original and both copies
        assert time.monotonic() < deadline, held
        held = {number: one for number, one in held.items() if member.holds(one)}
        held |= {one.attempts: one for one in member.poll(0.1, 10)}
    assert set(ids(list(held.values()))) == {event_id}
    member.acknowledge(list(held.values()))
    member.close()


def test_what_waits_is_in_the_brokers_hands_while_the_consumer_is_gone(behind: Behind) -> None:
    member = behind.member()
    (event_id,) = behind.world.send(behind.world.message())
    (incoming,) = fetch(member, 1)
    member.put_back(incoming, 0.4, "later", 3)
    member.acknowledge([incoming])
    member.close()
    channel, deadline = behind.rabbit.channel, time.monotonic() + 20
    while channel.queue_declare(behind.retry_queue, passive=True).method.message_count == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    member = behind.member()
    (again,) = fetch(member, 1)
    assert (ids([again]), again.attempts) == ([event_id], 3)
    member.close()


def test_a_retry_queue_that_was_deleted_is_made_again(behind: Behind) -> None:
    member = behind.member()
    behind.rabbit.channel.queue_delete(behind.retry_queue)
    (event_id,) = behind.world.send(behind.world.message())
    (incoming,) = fetch(member, 1)
    deadline = time.monotonic() + 20
    while not is_there(behind, behind.retry_queue):  # the broker cancels the subscription, and another one is made
        assert time.monotonic() < deadline
        member.poll(0.1, 0)
    if not member.holds(incoming):  # it came before the cancel
        (incoming,) = fetch(member, 1)
    member.put_back(incoming, 0.1, "later", 1)
    member.acknowledge([incoming])
    assert ids(fetch(member, 1)) == [event_id]
    member.close()


def is_there(behind: Behind, queue: str) -> bool:
    channel = behind.rabbit.connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    channel.close()
    return True


def test_a_deleted_waiting_queue_is_made_again_at_the_second_try(behind: Behind) -> None:
    member = behind.member()
    behind.world.send(behind.world.message())
    (incoming,) = fetch(member, 1)
    member.put_back(incoming, 60.0, "much later", 1)
    behind.rabbit.channel.queue_delete(f"{behind.retry_queue}.60000")
    with pytest.raises(BrokerUnavailable, match="was it deleted"):
        member.put_back(incoming, 60.0, "much later", 1)
    member.put_back(incoming, 60.0, "much later", 1)
    member.acknowledge([incoming])
    assert nothing_comes(member, 0.3)
    member.close()


def test_the_queues_are_of_the_kind_that_was_asked_for_and_somebody_elses_are_used_as_they_are(behind: Behind) -> None:
    channel = behind.rabbit.channel
    channel.queue_declare(behind.retry_queue, durable=True, arguments={"x-max-priority": 3})
    member = behind.member(
        dead_queue_arguments={"x-queue-type": "quorum"}, delay_queue_arguments={"x-queue-type": "classic"}
    )
    behind.world.send(behind.world.message())
    (incoming,) = fetch(member, 1)
    member.put_back(incoming, 0.2, "later", 1)
    member.acknowledge([incoming])
    member.acknowledge(fetch(member, 1))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="inequivalent"):
        channel.queue_declare(f"{behind.world.source}.{behind.world.consumer}.dead", durable=True)
    member.close()


def test_arguments_that_the_broker_does_not_know_are_named_at_once(behind: Behind) -> None:
    with pytest.raises(BadConsumer, match="x-queue-type"):
        behind.member(dead_queue_arguments={"x-queue-type": "no-such-type"})
    with pytest.raises(BadConsumer, match="prefetch"):
        behind.member(prefetch=0)
