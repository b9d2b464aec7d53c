"""What arrived at a real broker, held against what was written: nothing lost, and first occurrences in order."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from pillarbox.policy.lanes import lane_of, partition_of
from tests.crash.ordered_lab import Lab


class Arrived(NamedTuple):
    """One message. ``place`` tells in which order its key's messages lie."""

    event_id: str
    key: str | None
    place: int


def in_topic(bootstrap: str, topic: str, seconds: float = 30.0) -> list[Arrived]:
    """All that is in a Kafka topic now, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in partitions}
        consumer.assign([TopicPartition(topic, n, 0) for n in partitions])
        found: list[Arrived] = []
        deadline = time.monotonic() + seconds
        while len(found) < sum(ends.values()):
            assert time.monotonic() < deadline, f"{len(found)} of {sum(ends.values())} messages could be read"
            for message in consumer.consume(min(1_000, sum(ends.values()) - len(found)), 0.5):
                assert message.error() is None, message.error()
                headers = dict(message.headers() or [])
                key = message.key()
                found.append(
                    Arrived(str(headers["id"], "ascii"), None if key is None else str(key, "utf-8"), message.offset())
                )
        return sorted(found, key=lambda one: one.place)  # a key's messages are all in one partition
    finally:
        consumer.close()


def wrong(lab: Lab, arrived: Sequence[Arrived]) -> list[str]:
    """Everything that is wrong with it."""
    return [*_losses(lab, arrived), *_order(lab, arrived), *_owners(lab)]


def _losses(lab: Lab, arrived: Sequence[Arrived]) -> Iterator[str]:
    there = {one.event_id for one in arrived}
    events = lab.rows("SELECT e.event_id, r.id FROM outbox_event e LEFT JOIN outbox_receipt r ON r.id = e.id")
    for event_id, receipt in events:
        if event_id not in there or receipt is None:
            yield f"lost: {event_id} arrived: {event_id in there}, receipt: {receipt}"


def _order(lab: Lab, arrived: Sequence[Arrived]) -> Iterator[str]:
    numbers = dict(lab.rows("SELECT event_id, id FROM outbox_event"))
    first: dict[str, dict[int, None]] = defaultdict(dict)
    for one in arrived:
        if one.key is not None:
            first[one.key].setdefault(numbers[one.event_id])
    for key, found in first.items():
        if list(found) != sorted(found):
            yield f"out of order: first occurrences of key {key} are {list(found)}"


def _owners(lab: Lab) -> Iterator[str]:
    """Under one token of a partition, one relay alone has settled."""
    settled: dict[tuple[int, int], set[str]] = defaultdict(set)
    for key, event_id, relay, token in lab.rows(
        "SELECT e.event_key, e.event_id, r.relay, r.token FROM outbox_receipt r JOIN outbox_event e ON e.id = r.id"
    ):
        settled[partition_of(lane_of(key or event_id)), token].add(relay)
    for (number, token), relays in settled.items():
        if len(relays) > 1:
            yield f"partition {number}, token {token}: settled by {sorted(relays)}"
