"""Reading a topic from its beginning to its end, as consumers see it, without being anybody's group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...errors import BrokerUnavailable
from ..model import EventId, Record

_DEADLINE: Final = 10.0
_PATIENCE: Final = 30.0
"""Seconds until the whole topic must have been read, also while a leader is being elected."""

_PRODUCERS_ONLY: Final = frozenset(
    {
        "acks",
        "enable.idempotence",
        "partitioner",
        "linger.ms",
        "request.timeout.ms",
        "message.timeout.ms",
        "queue.buffering.max.kbytes",
    }
)


def read_committed(config: Mapping[str, Any], topic: str) -> tuple[Record, ...]:
    """All records up to the last stable offsets, without those of aborted transactions, by partition and offset."""
    with _reader(config, "read_committed") as reader:
        return tuple(map(_record, sorted(_all(reader, topic), key=lambda one: (one.partition(), one.offset()))))


def count_uncommitted(config: Mapping[str, Any], topic: str, committed: int) -> int:
    """How many records are in the log beyond ``committed``: aborted, or not decided yet."""
    with _reader(config, "read_uncommitted") as reader:
        return sum(1 for _ in _all(reader, topic)) - committed


def ends_of(config: Mapping[str, Any], topic: str) -> dict[int, int]:
    """The last stable offset of each partition: as far as a consumer can come."""
    with _reader(config, "read_committed") as reader:
        return {place.partition: reader.get_watermark_offsets(place, _DEADLINE)[1] for place in _places(reader, topic)}


@contextmanager
def _reader(config: Mapping[str, Any], isolation: str) -> Iterator[Consumer]:
    given = {name: value for name, value in config.items() if name not in _PRODUCERS_ONLY}
    reader = Consumer(
        {
            **given,
            "group.id": "pillarbox_lab_reader",  # the client wants one; nothing is subscribed to or committed under it
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        yield reader
    except KafkaException as error:
        raise BrokerUnavailable(f"Kafka does not let the lab read: {error.args[0].str()}.") from error
    finally:
        reader.close()


def _places(reader: Consumer, topic: str) -> list[TopicPartition]:
    partitions = reader.list_topics(topic, timeout=_DEADLINE).topics[topic].partitions
    return [TopicPartition(topic, number, 0) for number in sorted(partitions)]


def _all(reader: Consumer, topic: str) -> Iterator[Message]:
    """To the end that the client reports itself: offsets have gaps where transactions ended."""
    places = _places(reader, topic)
    reader.assign(places)
    open_ends = {place.partition for place in places}
    until = time.monotonic() + _PATIENCE
    while open_ends:
        for message in reader.consume(500, timeout=0.2):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                open_ends.discard(message.partition() or 0)
            elif not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
        if open_ends and time.monotonic() > until:
            raise BrokerUnavailable(f"Partitions {sorted(open_ends)} of {topic} were not read within {_PATIENCE:g} s.")


_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # a broker that does not know of the new topic yet
    }
)


def _record(message: Message) -> Record:
    place = f"{message.topic()}[{message.partition()}]@{message.offset()}"
    headers = {
        name: "" if value is None else bytes(value).decode("utf-8", "replace") for name, value in _headers(message)
    }
    kind, stamp = message.timestamp()
    return Record(EventId(headers.get("id", place)), place, headers, stamp / 1000 if kind else None)


def _headers(message: Message) -> list[tuple[str, Any]]:
    found: Any = message.headers()
    return list(found.items()) if isinstance(found, dict) else list(found or ())
