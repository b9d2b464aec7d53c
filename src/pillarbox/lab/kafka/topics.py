"""A topic of one partition for one trial: made, watched, read to its end, and removed. Always past the proxies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, but not in its __all__
    AdminClient,
    NewTopic,
)

from ...errors import LabError
from ..grounds.claims import claim
from ..grounds.kafka_topics import CLAIMED, signature
from .trial import Setting, Sync, Told

WARM_UP: Final = b"warm-up"
"""The key of a first record, sent while all is well, so that the fault meets an open connection. Never counted."""

_ASK = 5.0  # seconds for one question
_DEADLINE = 60.0  # seconds for the cluster to come to a state


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@contextmanager
def trial_topic(
    bootstrap: str, cell: str, *, replicas: Sequence[int] | None = None, config: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A new topic; ``replicas`` are its brokers, the preferred leader first (default: up to three, as Kafka chooses).

    Returns when all replicas are in sync.
    """
    client = admin(bootstrap)
    with claim(CLAIMED, cell) as claimed:
        count = len(replicas or client.list_topics(timeout=_ASK).brokers)
        shape = {"replica_assignment": [list(replicas)]} if replicas else {"replication_factor": min(count, 3)}
        topic = NewTopic(claimed.name, 1, config={**signature(claimed.name), **(config or {})}, **shape)
        client.create_topics([topic], operation_timeout=20)[claimed.name].result(30)
        try:
            wait_for(lambda: len(sync(bootstrap, claimed.name, "").in_sync) == min(count, 3), "all replicas in sync")
            yield claimed.name
        finally:
            client.delete_topics([claimed.name], operation_timeout=20)[claimed.name].result(30)


def sync(bootstrap: str, topic: str, moment: str) -> Sync:
    """Leader and in-sync replicas now. A client of its own: an old one may go on asking a broker that is stopped."""
    try:
        found = admin(bootstrap).list_topics(topic, timeout=_ASK).topics[topic]
    except KafkaException:
        return Sync(moment, -1, ())
    partition = found.partitions.get(0)
    return Sync(moment, -1, ()) if partition is None else Sync(moment, partition.leader, tuple(sorted(partition.isrs)))


def length(bootstrap: str, topic: str) -> int:
    """How many records consumers can see: the high watermark."""
    with _reader(bootstrap) as consumer:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_ASK)[1])


def places(bootstrap: str, topic: str) -> dict[str, tuple[str, ...]]:
    """``topic[partition]@offset`` of every record, by event id; the warm-up is left out."""
    found: dict[str, tuple[str, ...]] = {}
    with _reader(bootstrap) as consumer:
        start = TopicPartition(topic, 0, OFFSET_BEGINNING)
        _, end = consumer.get_watermark_offsets(start, timeout=_ASK)
        consumer.assign([start])
        position, deadline = 0, time.monotonic() + _DEADLINE
        while position < end:
            record = consumer.poll(1.0)
            if time.monotonic() > deadline:
                raise LabError(f"Topic {topic} could not be read to its end, {end}: it stands at {position}.")
            if record is None or record.error():
                continue
            position = int(record.offset() or 0) + 1
            key = record.key() or b""
            if key != WARM_UP:
                event_id = str(key, "ascii")
                found[event_id] = (*found.get(event_id, ()), f"{topic}[0]@{record.offset()}")
    return found


def wait_for(condition: Callable[[], bool], what: str, seconds: float = _DEADLINE) -> None:
    """Until the condition holds; LabError (PB-100) when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"The Kafka cluster did not come to this within {seconds:g} s: {what}.")
        time.sleep(0.01)


class Sending:
    """One producer and what it was told of each event. Raw confluent-kafka, with the settings as they are given."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, Setting]) -> None:
        self.told: dict[str, int | None] = {}
        """The acknowledged events, with the offset that the client named; -1 of a client that knows none is None."""
        self.errors: dict[str, str] = {}
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})

    def warm_up(self) -> None:
        """Send one record while all is well."""
        self._producer.produce(self._topic, key=WARM_UP, value=b"")
        self.flush(_DEADLINE)

    def send(self, event_id: str) -> None:
        """Hand one event to the client, which sends it in its own thread."""
        headers: dict[str, str | bytes | None] = {"id": event_id}
        self._producer.produce(self._topic, key=event_id.encode(), value=b"{}", headers=headers, on_delivery=self._note)
        self._producer.poll(0)

    def flush(self, seconds: float) -> bool:
        """Wait for the outcome of everything that was sent; False when some is still open."""
        return int(self._producer.flush(seconds)) == 0

    def _note(self, error: KafkaError | None, record: object) -> None:
        event_id = str(record.key(), "ascii")  # type: ignore[attr-defined]
        offset = record.offset()  # type: ignore[attr-defined]
        if error is None:
            self.told[event_id] = offset if offset is not None and offset >= 0 else None
        else:
            self.errors[event_id] = error.name()


def told(
    event_ids: Sequence[str], acknowledged: Mapping[str, int | None], found: Mapping[str, tuple[str, ...]]
) -> tuple[Told, ...]:
    """Both sides of every event, in the order of sending."""
    return tuple(Told(one, one in acknowledged, acknowledged.get(one), found.get(one, ())) for one in event_ids)


@contextmanager
def _reader(bootstrap: str) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "pillarbox_lab_reader", "enable.auto.commit": False}
    with closing(Consumer({**settings, "auto.offset.reset": "earliest", "log_level": 0})) as consumer:
        yield consumer
