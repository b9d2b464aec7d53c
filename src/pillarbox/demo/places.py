"""Databases and broker destinations that the demo makes for itself, reads back, and removes again.

On a real server every name begins with ``pillarbox_demo_`` and carries a random part; nothing else is touched.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.engine import URL

from ..errors import BadUrl, BrokerUnavailable, DemoFailed
from ..event.destination import Destination, Exchange, Topic
from ..store.engines import sqlite_engine
from .options import DemoOptions

PREFIX = "pillarbox_demo_"


@dataclass(frozen=True, slots=True)
class World:
    """Where one way of the demo lives. ``source`` is what the stock service reads: a topic or a queue.

    ``consumer`` is the stock service's name, its group on Kafka: of this run alone, since a group of a user's own or of
    another demo would take its partitions. ``reading`` are the consumer's options: how soon the broker gives a killed
    consumer's share to the next one.
    """

    folder: Path
    consumer: str
    shop_url: str
    stock_url: str
    broker_url: str
    destination: Destination
    source: str
    reading: dict[str, Any]
    published_ids: Callable[[], list[str]]


@contextmanager
def new_world(options: DemoOptions) -> Iterator[World]:
    """Make the databases and the destination; remove them at the end, also after an error."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise DemoFailed(
            f"The demo cannot make a temporary folder: {error.strerror}.", fix="Point TMPDIR at a folder it may write."
        ) from error
    name = PREFIX + secrets.token_hex(4)
    try:
        with (
            _databases(options.database, name, folder) as (shop, stock),
            _broker(options.broker, name, folder) as broker,
        ):
            yield World(folder, name, shop, stock, *broker)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def engine_for(url: str) -> Engine:
    """An engine as a user would make it."""
    return sqlite_engine(url) if url.startswith("sqlite") else create_engine(url, pool_pre_ping=True)


# Databases --------------------------------------------------------------------------------------------------------


@contextmanager
def _databases(given: str | None, name: str, folder: Path) -> Iterator[tuple[str, str]]:
    if given is None:
        yield f"sqlite:///{(folder / 'shop.db').as_posix()}", f"sqlite:///{(folder / 'stock.db').as_posix()}"
        return
    url = make_url(given)
    if url.get_backend_name() == "sqlite":
        raise BadUrl("The demo makes its own SQLite files.", fix="Leave --database out, or name a server.")
    with _own_database(url, f"{name}_shop") as shop, _own_database(url, f"{name}_stock") as stock:
        yield shop, stock


@contextmanager
def _own_database(url: URL, name: str) -> Iterator[str]:
    quote = '"' if url.get_backend_name() == "postgresql" else "`"
    engine = create_engine(url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {quote}{name}{quote}"))
        try:
            yield url.set(database=name).render_as_string(hide_password=False)
        finally:
            force = " WITH (FORCE)" if url.get_backend_name() == "postgresql" else ""
            with engine.connect() as connection:
                connection.execute(text(f"DROP DATABASE {quote}{name}{quote}{force}"))
    finally:
        engine.dispose()


# Brokers ----------------------------------------------------------------------------------------------------------

Broker = tuple[str, Destination, str, dict[str, Any], Callable[[], list[str]]]


@contextmanager
def _broker(given: str | None, name: str, folder: Path) -> Iterator[Broker]:
    if given is None or given.startswith("embedded:"):
        yield _embedded(name, folder)
    elif given.startswith("kafka:"):
        with _kafka(given, name) as made:
            yield made
    elif given.startswith(("amqp:", "amqps:")):
        with _rabbitmq(given, name) as made:
            yield made
    elif given.startswith("nats:"):
        from .nats import nats_place

        with nats_place(given, name) as made:
            yield made
    else:
        raise BadUrl(f"The demo knows embedded, kafka://, amqp:// and nats:// brokers, got {given.split(':')[0]!r}.")


def _embedded(name: str, folder: Path) -> Broker:
    from ..embedded import EmbeddedLog

    path = folder / "log.db"

    def read() -> list[str]:
        with EmbeddedLog(path) as log:
            return [record.headers["id"] for record in log.records(name)]

    return f"embedded:///{path.as_posix().lstrip('/')}", Topic(name), name, {"lease": 3.0}, read


@contextmanager
def _kafka(url: str, name: str) -> Iterator[Broker]:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    bootstrap = url.removeprefix("kafka://").split("?")[0].rstrip("/")
    admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 6000})
    replicas = min(3, len(admin.list_topics(timeout=10).brokers))
    admin.create_topics([NewTopic(name, 4, replicas)], operation_timeout=10)[name].result(15)

    def read() -> list[str]:
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False})
        try:
            partitions = reader.list_topics(name, timeout=10).topics[name].partitions
            ends = {p: reader.get_watermark_offsets(TopicPartition(name, p), timeout=10)[1] for p in partitions}
            reader.assign([TopicPartition(name, p, 0) for p in partitions])
            found: list[str] = []
            while (left := sum(ends.values()) - len(found)) > 0:
                batch = reader.consume(min(500, left), timeout=10)  # waits for that many: for 500, in vain, all 10 s
                if not batch:
                    raise BrokerUnavailable(f"The topic {name} stopped answering while it was read back.")
                found.extend(_event_id(message.headers()) for message in batch if not message.error())
            return found
        finally:
            reader.close()

    try:
        yield url, Topic(name), name, {"config": {"group.instance.id": "stock-1", "session.timeout.ms": 6000}}, read
    finally:
        dead = [t for t in admin.list_topics(timeout=10).topics if t.startswith(name)]
        for future in admin.delete_topics(dead, operation_timeout=10).values():
            future.result(15)


def _event_id(headers: Any) -> str:
    return str(dict(headers)["id"], "utf-8")


@contextmanager
def _rabbitmq(url: str, name: str) -> Iterator[Broker]:
    import pika

    queue, audit = f"{name}.stock", f"{name}.audit"

    def channel() -> Any:
        return pika.BlockingConnection(pika.URLParameters(url)).channel()

    made = channel()
    made.exchange_declare(name, "topic", durable=True)
    for each in (queue, audit):
        made.queue_declare(each, durable=True, arguments={"x-queue-type": "quorum"})
        made.queue_bind(each, name, "#")
    made.connection.close()

    def read() -> list[str]:
        reading = channel()
        found = []
        while True:
            method, properties, _ = reading.basic_get(audit, auto_ack=False)
            if method is None:
                break
            found.append(properties.message_id)
        reading.connection.close()  # nothing was acknowledged: the audit queue keeps everything for the next look
        return found

    try:
        yield url, Exchange(name, "demo.order-placed"), queue, {}, read
    finally:
        removing = channel()
        removing.exchange_delete(name)
        for each in (queue, audit, f"{queue}.{name}.dead"):
            removing.queue_delete(each)
        removing.connection.close()
