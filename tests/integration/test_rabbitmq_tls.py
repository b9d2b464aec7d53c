"""RabbitMQ over TLS, with a node and an authority of its own: whom it trusts, and what it says of whom it does not."""

from __future__ import annotations

import json
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pika
import pytest

from pillarbox.errors import BrokerUnavailable
from pillarbox.ports import Confirmed, Rejected
from pillarbox.publish.registry import open_publisher
from pillarbox.testing.conformance.publisher_order import in_order
from pillarbox.testing.conformance.publisher_world import Arrived, message, messages
from tests.certificates import Authority
from tests.ordered_pump import OrderedPump
from tests.own_rabbitmq import OwnRabbitMQ, own_rabbitmq
from tests.rabbitmq_broker import QUEUE


@pytest.fixture(scope="module")
def node() -> Iterator[OwnRabbitMQ]:
    try:
        with own_rabbitmq() as node:
            yield node
    except FileNotFoundError as missing:
        pytest.skip(f"RabbitMQ is not installed: {missing}")


@pytest.fixture(autouse=True)
def queue(node: OwnRabbitMQ) -> Iterator[None]:
    with closing(pika.BlockingConnection(pika.URLParameters(node.url))) as connection:
        connection.channel().queue_declare("events", durable=True, arguments={"x-queue-type": "quorum"})
    yield
    with closing(pika.BlockingConnection(pika.URLParameters(node.url))) as connection:
        connection.channel().queue_delete("events")


@pytest.fixture
def ca(node: OwnRabbitMQ) -> Path:
    return node.certificates / "ca.pem"


def test_publishing_over_TLS_confirms_what_then_is_in_the_queue(node: OwnRabbitMQ, ca: Path) -> None:
    """More than one window of a channel, and one message larger than a TLS record."""
    sent = [message(QUEUE, payload=b"x" * 200_000), *messages(QUEUE, 2_500)]
    with closing(open_publisher(node.tls(ca=ca), deadline=15)) as publisher:
        assert publisher.publish(sent) == [Confirmed()] * 2_501
        assert publisher.publish_in_order(messages(QUEUE, 200, keys=5)) == [Confirmed()] * 200
    assert len(taken(node)) == 2_701


def test_PB_005_an_authority_that_is_not_trusted_is_named(node: OwnRabbitMQ, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign", "another authority").ca
    for url in (node.tls(ca=foreign), node.tls()):
        refused(url, "certificate verify failed", "ca=FILE")


def test_PB_005_a_certificate_for_another_host_is_refused(node: OwnRabbitMQ, ca: Path) -> None:
    refused(node.tls("127.0.0.1", ca=ca), "127.0.0.1", "certificate")
    with closing(open_publisher(node.tls("127.0.0.1") + "verify=no", deadline=10)) as publisher:
        assert publisher.publish([message(QUEUE)]) == [Confirmed()]


def test_PB_005_TLS_at_a_port_without_and_none_at_a_port_with_it_end_quickly(node: OwnRabbitMQ, ca: Path) -> None:
    plain_port, tls_port = node.url.split(":")[-1].strip("/"), node.tls().split(":")[-1].split("/")[0]
    refused(node.tls(ca=ca).replace(tls_port, plain_port), "TLS", "5671")
    refused(node.url.replace(plain_port, tls_port), "amqps://")


def test_the_client_shows_its_certificate(node: OwnRabbitMQ, ca: Path, tmp_path: Path) -> None:
    folder = node.certificates
    url = node.tls(ca=ca, cert=folder / "client.pem", key=folder / "client.key")
    with closing(open_publisher(url, deadline=10)):
        wait_for(lambda: "CN=relay.example" in subjects(node))
    foreign = Authority(tmp_path / "foreign", "another authority")
    foreign.issue("client", "relay.example")
    folder = tmp_path / "foreign"
    refused(node.tls(ca=ca, cert=folder / "client.pem", key=folder / "client.key"), "RabbitMQ")


@pytest.mark.long
def test_a_node_that_restarts_in_order_under_load_costs_waiting_and_nothing_else(node: OwnRabbitMQ, ca: Path) -> None:
    """As a package upgrade does: it says goodbye to its clients (320), and is away for some seconds."""
    publisher = open_publisher(node.tls(ca=ca), deadline=4)
    with closing(publisher), OrderedPump(publisher, QUEUE) as pump:
        node.restart()
        pump.wait_for_confirms(500)
    assert pump.odd
    assert not any(isinstance(outcome, Rejected) for outcome in pump.odd)
    assert in_order(pump.sent, taken(node))


# Helpers ------------------------------------------------------------------------------------------------------------


def refused(url: str, *says: str) -> None:
    """It is, within its deadline, with a message that has these words and no password."""
    started = time.monotonic()
    with pytest.raises(BrokerUnavailable) as caught:
        open_publisher(url, deadline=8)
    assert time.monotonic() - started < 8
    for part in says:
        assert part in str(caught.value)
    assert "guest" not in str(caught.value)


def subjects(node: OwnRabbitMQ) -> set[str]:
    """Of the certificates that clients have shown."""
    login = b64encode(b"guest:guest").decode()
    request = urllib.request.Request(f"{node.management}/api/connections", headers={"Authorization": f"Basic {login}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return {one.get("peer_cert_subject", "") for one in json.load(response)}


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # the API's statistics lag behind by some seconds
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def taken(node: OwnRabbitMQ) -> list[Arrived]:
    found = []
    with closing(pika.BlockingConnection(pika.URLParameters(node.url))) as connection:
        channel = connection.channel()
        for _, properties, body in channel.consume("events", auto_ack=True, inactivity_timeout=1):
            if body is None:
                break
            headers = dict(properties.headers)
            found.append(Arrived(headers, body, headers.pop("key", None)))
    return found
