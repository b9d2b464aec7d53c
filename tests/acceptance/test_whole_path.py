"""The three commands of the README on real servers: init, relay, consume; each a process of its own."""

import textwrap
from contextlib import closing

import pika
import pytest

from tests.nats_server import Streams
from tests.services_fixtures import MakeTopic

from .events import Shop
from .processes import Cli

EVENTS = 200
MODULE = """
    from pillarbox import Consumer, Received

    consumer = Consumer("stock", database={database!r}, broker={broker!r}, sources=[{source!r}])

    @consumer.on("order.created")
    def reserve(event: Received) -> None:
        assert event.payload["n"] == int(event.aggregate[1])
"""


@pytest.fixture
def queue(rabbitmq_url: str) -> str:
    """A queue bound to the exchange `orders`."""
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", "topic", durable=True)
        channel.queue_declare("stock", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind("stock", "orders", "order.#")
    return "stock"


def whole_path(cli: Cli, database: str, broker: str, topic: str, source: str) -> None:
    env = {"PILLARBOX_DATABASE": database, "PILLARBOX_BROKER": broker}
    assert cli.run("init", env=env).code == 0
    shop = Shop(database, broker)
    shop.place(EVENTS, to=topic)
    sent = cli.run("relay", "--until-empty", "--timeout", "60", "--json", env=env)
    assert (sent.code, sent.json["sent"], sent.json["left"]) == (0, EVENTS, 0), sent.err
    text = MODULE.format(database=database, broker=broker, source=source)
    (cli.folder / "stock.py").write_text(textwrap.dedent(text), encoding="utf-8")
    with cli.started("consume", "stock:consumer", "--json") as consumer:
        consumer.until(lambda: shop.rows("SELECT COUNT(*) FROM inbox_event") == [(EVENTS,)], timeout=60)
        consumer.process.terminate()
        ended = consumer.ended()
    assert ended.code == 0, ended.err
    assert f'"applied": {EVENTS}' in ended.out
    assert cli.run("status", "--json", env=env).json["counts"]["SENT"] == EVENTS


def test_mysql_to_kafka(cli: Cli, mysql_url: str, kafka_url: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    whole_path(cli, mysql_url, kafka_url, topic, topic)


def test_postgresql_to_nats(cli: Cli, postgres_url: str, nats_url: str) -> None:
    with closing(Streams(nats_url)) as streams:
        subject = streams.make()
        whole_path(cli, postgres_url, nats_url, subject, subject)


def test_postgresql_to_rabbitmq(cli: Cli, postgres_url: str, rabbitmq_url: str, queue: str) -> None:
    whole_path(cli, postgres_url, rabbitmq_url, "orders", queue)
