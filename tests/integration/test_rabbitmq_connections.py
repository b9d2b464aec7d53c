"""RabbitMQ's connections: hosts that are down or frozen, and a peer that is silent."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from pillarbox.ports import Confirmed, Unavailable
from pillarbox.publish.registry import make_publisher, open_publisher
from pillarbox.testing.conformance.publisher_world import message
from tests.rabbitmq_broker import QUEUE, RabbitBroker, rabbit_broker


@pytest.fixture
def broker(rabbitmq_url: str) -> Iterator[RabbitBroker]:
    with rabbit_broker(rabbitmq_url) as broker:
        yield broker


@pytest.fixture
def mute() -> Iterator[int]:
    """The port of a host that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def deaf() -> Iterator[int]:
    """The port of a host that does not even take connections: its queue of them is full, and Linux drops what comes."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, ExitStack() as waiting:
        port = listening.getsockname()[1]
        with suppress(TimeoutError):
            while True:
                waiting.enter_context(socket.create_connection(("127.0.0.1", port), timeout=0.3))
        yield port


def test_a_frozen_host_of_a_list_is_passed_over_within_the_deadline(broker: RabbitBroker, mute: int) -> None:
    url = broker.url.replace("@", f"@127.0.0.1:{mute},127.0.0.1:1,")
    started = time.monotonic()
    with closing(open_publisher(url, deadline=6)) as publisher:
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]
        assert time.monotonic() - started < 6
        broker.proxy.cut()  # the next one in the list is the frozen one again
        wait_for(lambda: publisher.publish([message(QUEUE)]) == [Confirmed()])


def test_a_connection_that_opens_after_its_batch_was_given_up_serves_the_next_one(
    broker: RabbitBroker, deaf: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with several addresses: each has its own timeout, and together they outlast the batch."""
    ports = (deaf, deaf, broker.proxy.port)
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **named: addresses if host == "cluster" else resolve(host, *rest, **named),
    )
    url = broker.url.replace("127.0.0.1", "cluster")
    with closing(make_publisher(url, deadline=2)) as publisher:
        (first,) = publisher.publish([message(QUEUE)])
        assert isinstance(first, Unavailable)
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]
    assert len(broker.bodies()) == 1


def test_a_peer_that_sends_no_heartbeats_is_given_up_while_nothing_is_published(
    broker: RabbitBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes pika twice (heartbeat + 5) seconds at most; else the next publish would cost its whole deadline."""
    with closing(open_publisher(f"{broker.url}?heartbeat=1", deadline=10)) as publisher:
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]
        broker.proxy.freeze()
        wait_for(lambda: "the connection was lost: AMQPHeartbeatTimeout" in caplog.text)
        broker.proxy.heal()
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]


# Helpers ------------------------------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], bool], seconds: float = 25) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
