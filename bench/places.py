"""A database and a broker destination for one round, gone when it ends. The servers are those of the tests."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pika
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pika.adapters.blocking_connection import BlockingChannel
from sqlalchemy import create_engine

from pillarbox.embedded import EmbeddedLog
from pillarbox.store.install import install
from tests import servers

DATABASES = ("sqlite", *servers.DATABASES)
BROKERS = (*servers.BROKERS, "embedded", "null")
TOPIC_PARTITIONS = 6
Settings = dict[str, str | int | float | bool]  # of the Kafka client
PATIENCE = 20.0  # seconds for a broker to count what it has confirmed


class NoServer(RuntimeError):
    """The server that was asked for is not there."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where one round's events go. ``arrived`` counts them; None: nobody can."""

    url: str
    destination: str
    arrived: Callable[[], int] | None


def server_of(name: str) -> servers.Found:
    """The server's URL and version; NoServer says what is missing."""
    if name in ("sqlite", "embedded", "null"):
        return servers.Found(name)
    found = servers.look_for(name, servers.read_settings())
    if found.problem:
        raise NoServer(found.problem)
    return found


@contextmanager
def fresh_database(name: str) -> Iterator[str]:
    """The URL of an empty database."""
    if name != "sqlite":
        try:
            with servers.fresh_database(server_of(name).url) as url:
                yield url
        finally:
            servers.wait_for_removals()  # the next measurement is not to be disturbed by it
        return
    with TemporaryDirectory(prefix="pillarbox-bench-") as folder:
        yield f"sqlite:///{Path(folder) / 'outbox.db'}"


@contextmanager
def fresh_broker(name: str) -> Iterator[Broker]:
    """A topic, or an exchange with a quorum queue, or a file, or nothing."""
    match name:
        case "kafka":
            yield from _kafka(server_of(name).url)
        case "rabbitmq":
            yield from _rabbitmq(server_of(name).url)
        case "embedded":
            yield from _embedded()
        case _:
            yield Broker("null:", "bench", None)


def _kafka(url: str) -> Iterator[Broker]:
    bootstrap: Settings = {"bootstrap.servers": servers.bootstrap_of(url), "log_level": 0}
    admin = AdminClient(bootstrap)
    topic = servers.create_topic(admin, TOPIC_PARTITIONS, 3, {})
    try:
        _warm_up(bootstrap, topic)
        before = _offsets(bootstrap, topic)
        yield Broker(url, topic, lambda: _offsets(bootstrap, topic) - before)
    finally:
        admin.delete_topics([topic], operation_timeout=20)[topic].result(30)


def _warm_up(bootstrap: Settings, topic: str) -> None:
    """The first messages of a new topic take a second or more, which would be most of a short round."""
    producer = Producer({**bootstrap, "acks": "all", "enable.idempotence": True})
    for _ in range(5):
        for number in range(TOPIC_PARTITIONS * 20):
            producer.produce(topic, b"warm-up", partition=number % TOPIC_PARTITIONS)
        if producer.flush(30):
            raise NoServer(f"Kafka took no messages for {topic} in 30 s")


def _offsets(bootstrap: Settings, topic: str) -> int:
    consumer = Consumer({**bootstrap, "group.id": "bench"})
    try:
        places = [TopicPartition(topic, number) for number in range(TOPIC_PARTITIONS)]
        return sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
    finally:
        consumer.close()


def _rabbitmq(url: str) -> Iterator[Broker]:
    management = servers.read_settings().get(f"{servers.PREFIX}RABBITMQ_MANAGEMENT")
    with servers.fresh_virtual_host(url, management) as own:
        name = servers.unique("bench")
        parameters = pika.URLParameters(own)
        parameters.heartbeat = 0  # nobody reads from this connection while a drain runs
        connection = pika.BlockingConnection(parameters)
        try:
            channel = connection.channel()
            channel.exchange_declare(name, "topic", durable=True)
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind(name, name, "#")
            yield Broker(own, name, lambda: _waiting(channel, name))
            channel.queue_delete(name)
            channel.exchange_delete(name)
        finally:
            connection.close()


def _waiting(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def _embedded() -> Iterator[Broker]:
    with TemporaryDirectory(prefix="pillarbox-bench-") as folder:
        path = Path(folder) / "events.log"
        yield Broker(f"embedded://{path}", "bench", lambda: _in_log(path))


def _in_log(path: Path) -> int:
    with EmbeddedLog(path) as log:
        return sum(log.topics().values())


def installed(url: str) -> None:
    """Tables as `pillarbox init` makes them."""
    engine = create_engine(url)
    try:
        install(engine, ["outbox"])
    finally:
        engine.dispose()


def tell(line: str) -> None:
    """Progress goes to standard error: standard output is the result."""
    print(line, file=sys.stderr, flush=True)


def wait_for_arrival(broker: Broker, expected: int) -> None:
    """RuntimeError unless exactly ``expected`` messages are there; a queue's own count may lag a little."""
    if broker.arrived is None:
        return
    deadline = time.monotonic() + PATIENCE
    while (count := broker.arrived()) != expected:
        if count > expected or time.monotonic() > deadline:
            raise RuntimeError(f"{count} messages arrived, not {expected}")
        time.sleep(0.05)
