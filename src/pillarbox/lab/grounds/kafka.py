"""Kafka as the ground: one topic for a cell, read from its beginning by nobody's group. Timestamps are the broker's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, but not in its __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)

from ...errors import BrokerUnavailable, LabError
from ...event.destination import Destination, Topic
from ...publish.kafka.replication import MIN_IN_SYNC, observe_topics
from ..model import NotVisible, Record
from ..ports import Address
from .claims import Claim, forget
from .clocks import offset
from .kafka_reading import count_uncommitted, ends_of, read_committed
from .kafka_topics import DEADLINE, answer_of, clock_of, cluster, connect, create, new_topic, remove

PARTITIONS: Final = 4
_SESSION_MS: Final = 6_000


@dataclass(slots=True)
class KafkaGround:
    """A :class:`~pillarbox.lab.ports.BrokerGround` on a cluster."""

    url: str
    topic: str
    replicas: int
    _admin: AdminClient
    _config: dict[str, Any]
    name: str = "kafka"
    address: Address | None = None  # brokers advertise themselves: a proxy before one would be passed by

    @property
    def destination(self) -> Destination:
        """The topic of this cell."""
        return Topic(self.topic)

    def source(self, consumer: str) -> str:
        """The topic: every group reads all of it."""
        return self.topic

    def source_options(self) -> Mapping[str, Any]:
        """A killed consumer's partitions go on elsewhere after six seconds, the least that brokers allow as a rule."""
        return {"config": {"session.timeout.ms": _SESSION_MS}}

    def through(self, port: int) -> str | NotVisible:
        """A client goes where the brokers say they are."""
        return NotVisible(
            "Kafka's clients connect to the addresses that the brokers advertise, and pass by a proxy that was not"
            " set up with the cluster"
        )

    def records(self) -> tuple[Record, ...]:
        """What a consumer with ``isolation.level=read_committed`` sees, by partition and offset."""
        return read_committed(self._config, self.topic)

    def state(self) -> Mapping[str, Any]:
        """Replicas, the in-sync ones of each partition, leaders' ends; and how much is there but not committed.

        ``uncommitted_records`` are in the log without being visible to ``read_committed``: of aborted transactions, of
        one that is still open, or behind an open one.
        """
        found = observe_topics(self.url, [self.topic], deadline=DEADLINE)
        if not found:
            raise LabError(f"The lab's topic {self.topic} is gone.", fix="Leave the lab's topics alone while it runs.")
        seen = found[0]
        committed = len(self.records())
        return {
            "topic": self.topic,
            "partitions": len(seen.replicas),
            "replication_factor": seen.replication_factor,
            "min_insync_replicas": (
                NotVisible("the user may not ask (DESCRIBE_CONFIGS)") if seen.min_in_sync is None else seen.min_in_sync
            ),
            "replicas": {number: list(brokers) for number, brokers in seen.replicas.items()},
            "in_sync_replicas": {number: list(brokers) for number, brokers in seen.in_sync.items()},
            "end_offsets": ends_of(self._config, self.topic),
            "records": committed,
            "uncommitted_records": count_uncommitted(self._config, self.topic, committed),
        }

    def committed(self, consumer: str) -> Mapping[str, Any]:
        """The group's committed offsets and the ends that it can reach (the last stable offsets), by partition.

        ``lag`` is the offsets in between. The mark at a transaction's end has an offset, too, and is never handed out.
        """
        ends = ends_of(self._config, self.topic)
        places = [TopicPartition(self.topic, number) for number in ends]
        asked = ConsumerGroupTopicPartitions(consumer, places)
        answer = answer_of(self._admin.list_consumer_group_offsets([asked], request_timeout=DEADLINE)[consumer])
        at = {one.partition: one.offset if one.offset >= 0 else None for one in answer.topic_partitions}
        return {
            "group": consumer,
            "committed": at,
            "ends": ends,
            "lag": sum(end - (at.get(number) or 0) for number, end in ends.items()),
        }

    def settings(self) -> Mapping[str, Any]:
        """The topic's settings that matter. Which release the brokers run, no request of the client tells."""
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        names = (MIN_IN_SYNC, "unclean.leader.election.enable", "message.timestamp.type", "flush.messages")
        try:
            asked = answer_of(self._admin.describe_configs([resource], request_timeout=DEADLINE)[resource])
            found = {name: asked[name].value for name in names if name in asked}
        except BrokerUnavailable as error:
            found = dict.fromkeys(names, NotVisible(error.message))
        whole = cluster(self._admin)
        return {
            "broker": self.name,
            "server_version": NotVisible("the client has no request that tells a broker's release"),
            "cluster": whole.cluster_id,
            "brokers": len(whole.brokers),
            "replication_factor": self.replicas,
            "isolation_level": "read_committed",
            **found,
        }

    def clock_offset(self) -> float | NotVisible:
        """The leader's clock minus ours, by the timestamps that it gives to records of a topic of their own.

        It counts in milliseconds.
        """
        probe = clock_of(self.topic)
        producer = Producer({**self._config, "linger.ms": 0, "message.timeout.ms": int(DEADLINE * 1000)})
        producer.produce(probe, b"")  # the first record of a topic takes its time
        producer.flush(DEADLINE)

        def ask() -> float:
            stamps: list[int] = []

            def note(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    stamps.append(message.timestamp()[1])

            producer.produce(probe, b"", on_delivery=note)
            producer.flush(DEADLINE)
            if not stamps:
                raise BrokerUnavailable("Kafka did not take a record of the lab's within 10 s.")
            return stamps[0] / 1000 + 0.0005  # it cuts the rest of the millisecond off

        return offset(ask)


@contextmanager
def kafka_ground(url: str, claimed: Claim) -> Iterator[KafkaGround]:
    """A topic with as many replicas as the cluster allows, at most three; removed at the end, also after an error."""
    config, admin = connect(url)
    try:
        replicas = min(3, len(cluster(admin).brokers))
    except BrokerUnavailable:
        forget(claimed.name)  # nothing was made
        raise
    settings = {MIN_IN_SYNC: "2"} if replicas == 3 else {}  # with fewer, the broker's own default
    try:
        create(
            admin,
            [new_topic(claimed.name, PARTITIONS, replicas, settings), new_topic(clock_of(claimed.name), 1, 1, {})],
        )
        yield KafkaGround(url, claimed.name, replicas, admin, config)
    finally:
        remove(admin, {claimed.name}, (claimed.name, clock_of(claimed.name)))
        forget(claimed.name)
