"""The role of a consumer: notes when each event reached it. Its last line is (event id, when), in nanoseconds."""

from __future__ import annotations

import threading
import time
from typing import Any

from bench.child import Told, questions, say

Arrivals = list[tuple[str, int]]


def main(told: Told) -> None:
    """``told``: broker, destination. Ready once it would see the next message."""
    arrivals: Arrivals = []
    stop = threading.Event()
    ready = threading.Event()
    read = _kafka if told["broker"].startswith("kafka") else _rabbitmq
    thread = threading.Thread(target=read, args=(told, arrivals, ready, stop))
    thread.start()
    ready.wait(30)
    say("ready")
    for _ in questions():
        say(len(arrivals))
    stop.set()
    thread.join(10)
    say(arrivals)


def _kafka(told: Told, arrivals: Arrivals, ready: threading.Event, stop: threading.Event) -> None:
    from confluent_kafka import Consumer, TopicPartition

    bootstrap = told["broker"].removeprefix("kafka://")
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 500}
    )
    topic = told["destination"]
    places = [TopicPartition(topic, n) for n in consumer.list_topics(topic, timeout=10).topics[topic].partitions]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, timeout=10)[1]
    consumer.assign(places)
    consumer.poll(1.0)
    ready.set()
    while not stop.is_set():
        for message in consumer.consume(500, timeout=0.1) if told.get("many") else [consumer.poll(0.1)]:
            if message is not None and message.error() is None:
                headers: Any = dict(message.headers() or ())
                arrivals.append((headers["id"].decode(), time.time_ns()))
    consumer.close()


def _rabbitmq(told: Told, arrivals: Arrivals, ready: threading.Event, stop: threading.Event) -> None:
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(told["broker"]))
    channel = connection.channel()

    def arrived(_channel: Any, _method: Any, properties: Any, _body: bytes) -> None:
        arrivals.append((properties.message_id, time.time_ns()))

    channel.basic_consume(told["destination"], arrived, auto_ack=True)
    connection.process_data_events(0.2)
    ready.set()
    while not stop.is_set():
        connection.process_data_events(0.1)
    connection.close()
