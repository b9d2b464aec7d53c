"""How fast records came into a topic, by the brokers' own clocks."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from bench.places import TOPIC_PARTITIONS, Settings

PATIENCE = 30.0  # seconds without a record while some are missing
AT_ONCE = 5_000
WARM_UP_TYPE = "warm-up"
"""Event type of what is not counted."""


class Passage(NamedTuple):
    """``seconds`` from the first record's arrival to the last one's."""

    records: int
    events: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second between the first and the last."""
        return self.records / self.seconds


def passage(bootstrap: Settings, topic: str, beginning: list[int]) -> Passage:
    """Read a topic with ``message.timestamp.type=LogAppendTime`` from these offsets, one a partition, to its end.

    RuntimeError when a record has another kind of time, or none comes any more.
    """
    consumer = Consumer({**bootstrap, "group.id": "bench", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, number, offset) for number, offset in enumerate(beginning)])
        expected = sum(ends(consumer, topic)) - sum(beginning)
        times: list[int] = []
        ids: set[Any] = set()
        seen = 0
        while seen < expected:
            found = consumer.consume(AT_ONCE, PATIENCE)
            if not found:
                raise RuntimeError(f"{seen} of {expected} records came out of {topic}")
            for record in found:
                kind, at = record.timestamp()
                if record.error() or kind != 2:  # TIMESTAMP_LOG_APPEND_TIME
                    raise RuntimeError(f"{topic}: {record.error()}, time of kind {kind}")
                seen += 1
                headers = dict(record.headers() or ())
                if headers["eventType"] != WARM_UP_TYPE.encode():  # such a one may come late
                    times.append(at)
                    ids.add(headers["id"])
        return Passage(len(times), len(ids), (max(times) - min(times)) / 1000)
    finally:
        consumer.close()


def ends(consumer: Consumer, topic: str) -> list[int]:
    """Where each partition ends now."""
    places = [TopicPartition(topic, number) for number in range(TOPIC_PARTITIONS)]
    return [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
