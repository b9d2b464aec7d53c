"""RabbitMQ says nothing any more while messages are to be set aside or put back: nobody waits longer than necessary."""

import time

import pytest

from pillarbox.errors import BrokerUnavailable
from pillarbox.testing.conformance.source_world import fetch
from tests.integration.consume.test_rabbitmq_retries import Behind, behind
from tests.integration.consume.test_rabbitmq_trouble import BehindProxy, engine
from tests.integration.consume.test_rabbitmq_trouble import behind as behind_consumer

__all__ = ["behind", "behind_consumer", "engine"]


def test_a_stop_does_not_wait_for_every_message_that_a_silent_broker_cannot_take(behind_consumer: BehindProxy) -> None:
    world, proxy = behind_consumer.world, behind_consumer.proxy
    consumer = world.consumer_of_things(broker=behind_consumer.url, batch=10, options={"deadline": 1.0}, drain=1.0)
    consumer.pause()
    running = consumer.start()
    for _ in range(6):
        world.under_test.send_foreign(world.source, b"no event")
    time.sleep(0.5)  # they are with the client, but not handed out
    proxy.freeze()
    consumer.resume()
    running.wait_until(lambda: consumer.stats.received == 6)
    begun = time.monotonic()
    consumer.stop()
    running._thread.join(90)
    took = time.monotonic() - begun
    proxy.heal()
    assert took < 20, took  # six of them would take 42
    assert consumer.stats.broker_away < 6


def test_an_attempt_that_its_caller_gave_up_ends_with_it(behind: Behind) -> None:
    """Else its confirm could be taken for that of the next copy, which nobody has confirmed."""
    member = behind.member(deadline=0.5)
    behind.world.send(behind.world.message())
    (incoming,) = fetch(member, 1)
    behind.proxy.freeze()
    with pytest.raises(BrokerUnavailable):
        member.put_back(incoming, 0.0, "nobody waits for it", 1)
    behind.proxy.heal()
    until = time.monotonic() + 4
    while time.monotonic() < until:
        waiting = behind.rabbit.channel.queue_declare(behind.retry_queue, passive=True).method.message_count
        assert (waiting, [one for one in member.poll(0.1, 10) if one.attempts]) == (0, [])
    member.close()
