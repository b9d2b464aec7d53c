"""Kafka as the ground: one topic for a cell, read from its beginning by nobody's group.

The mark is a signature in the topic's own configuration, there from the moment of its creation: a value for
``delete.retention.ms``, which plays no part in a topic that is not compacted, made from the topic's name. Topics
named after a marked one (``….dead``, ``….retry``) belong to it. Timestamps are the broker's: LogAppendTime.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, but not in its __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from ...errors import BrokerUnavailable, LabError
from ...event.destination import Destination, Topic
from ...publish.kafka.replication import MIN_IN_SYNC, observe_topics
from ...publish.kafka.url import parse_kafka_url
from ..model import NotVisible, Record
from ..ports import Address
from .claims import Claim, abandoned, base_of, claimed_here, forget
from .clocks import offset
from .kafka_reading import count_uncommitted, ends_of, read_committed

CLAIMED: Final = "kafka"
PARTITIONS: Final = 4
_SIGNATURE: Final = "delete.retention.ms"
_DEADLINE: Final = 10.0
_SESSION_MS: Final = 6_000
_READY_SECONDS: Final = 20.0


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
        found = observe_topics(self.url, [self.topic], deadline=_DEADLINE)
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
        """The group's committed offsets and the ends that it can reach (the last stable offsets), by partition."""
        ends = ends_of(self._config, self.topic)
        places = [TopicPartition(self.topic, number) for number in ends]
        asked = ConsumerGroupTopicPartitions(consumer, places)
        try:
            answer = self._admin.list_consumer_group_offsets([asked], request_timeout=_DEADLINE)[consumer].result(15)
        except KafkaException as error:
            raise _unavailable(error) from error
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
            asked = self._admin.describe_configs([resource], request_timeout=_DEADLINE)[resource].result(15)
            found = {name: asked[name].value for name in names if name in asked}
        except KafkaException as error:
            why = NotVisible(f"the user may not ask: {error.args[0].str()}")
            found = dict.fromkeys(names, why)
        return {
            "broker": self.name,
            "server_version": NotVisible("the client has no request that tells a broker's release"),
            "brokers": len(self._admin.list_topics(timeout=_DEADLINE).brokers),
            "replication_factor": self.replicas,
            "isolation_level": "read_committed",
            **found,
        }

    def clock_offset(self) -> float | NotVisible:
        """The leader's clock minus ours, by the timestamps that it gives to records of a topic of their own.

        It counts in milliseconds.
        """
        probe = _clock(self.topic)
        producer = Producer({**self._config, "linger.ms": 0, "message.timeout.ms": int(_DEADLINE * 1000)})
        producer.produce(probe, b"")  # the first record of a topic takes its time
        producer.flush(_DEADLINE)

        def ask() -> float:
            stamps: list[int] = []

            def note(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    stamps.append(message.timestamp()[1])

            producer.produce(probe, b"", on_delivery=note)
            producer.flush(_DEADLINE)
            if not stamps:
                raise BrokerUnavailable("Kafka did not take a record of the lab's within 10 s.")
            return stamps[0] / 1000 + 0.0005  # it cuts the rest of the millisecond off

        return offset(ask)


@contextmanager
def kafka_ground(url: str, claimed: Claim) -> Iterator[KafkaGround]:
    """A topic with as many replicas as the cluster allows, at most three; removed at the end, also after an error."""
    config, admin = connect(url)
    replicas = min(3, len(_topics_of(admin).brokers))
    settings = {MIN_IN_SYNC: "2"} if replicas == 3 else {}  # with fewer, the broker's own default
    try:
        _create(admin, [_new(claimed.name, PARTITIONS, replicas, settings), _new(_clock(claimed.name), 1, 1, {})])
        yield KafkaGround(url, claimed.name, replicas, admin, config)
    finally:
        _remove(admin, {claimed.name})
        forget(claimed.name)


def foreign_topics(url: str, prefix: str) -> list[str]:
    """Topics whose names begin so and that no run of the lab has made."""
    _, admin = connect(url)
    names = sorted(name for name in _topics_of(admin).topics if name.startswith(prefix))
    bases = {base for name in names if (base := base_of(name)) is not None and base in names}
    ours = {base for base, sign in _signs(admin, bases).items() if sign == _sign(base)} | claimed_here()
    return [name for name in names if not _belongs(name, ours)]


def remove_left_topics(url: str) -> list[str]:
    """Remove the topics and groups that killed runs on this machine have left; returns their names."""
    _, admin = connect(url)
    with abandoned(CLAIMED) as claims:
        removed = _remove(admin, {one.name for one in claims})
        for one in claims:
            if one.name in removed:
                forget(one.name)
    return removed


def connect(url: str) -> tuple[dict[str, Any], AdminClient]:
    """The clients' configuration, and an admin client that nothing was asked of yet."""
    parsed = parse_kafka_url(url, deadline=_DEADLINE)
    return dict(parsed.config), AdminClient({**parsed.config})


def _clock(topic: str) -> str:
    """The topic whose records tell the time."""
    return f"{topic}.clock"


def _sign(name: str) -> str:
    return str(86_400_000 + crc32(f"pillarbox lab {name}".encode()))


def _signs(admin: AdminClient, names: Collection[str]) -> dict[str, str]:
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
    if not resources:
        return {}
    asked = admin.describe_configs(list(resources.values()), request_timeout=_DEADLINE)
    found: dict[str, str] = {}
    for name, resource in resources.items():
        try:
            found[name] = str(asked[resource].result(15)[_SIGNATURE].value)
        except KafkaException as error:  # gone since it was listed, or not to be asked: then it has no mark
            if error.args[0].retriable():
                raise _unavailable(error) from error
    return found


def _belongs(name: str, bases: Collection[str]) -> bool:
    return any(name == base or name.startswith(f"{base}.") for base in bases)


def _create(admin: AdminClient, wanted: Sequence[NewTopic]) -> None:
    """Create the topics and wait until each partition has its leader and all replicas in sync."""
    try:
        for future in admin.create_topics(list(wanted), operation_timeout=_DEADLINE).values():
            future.result(15)
        until = time.monotonic() + _READY_SECONDS
        while not all(_is_ready(admin, one) for one in wanted):
            if time.monotonic() > until:
                raise BrokerUnavailable(f"The topic {wanted[0].topic} has no leaders after {_READY_SECONDS:g} s.")
            time.sleep(0.02)
    except KafkaException as error:
        raise _unavailable(error) from error


def _is_ready(admin: AdminClient, wanted: NewTopic) -> bool:
    there = admin.list_topics(wanted.topic, timeout=_DEADLINE).topics[wanted.topic].partitions.values()
    full = [one for one in there if one.leader >= 0 and len(one.isrs) == wanted.replication_factor]
    return len(full) == wanted.num_partitions


def _new(name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> NewTopic:
    config = {_SIGNATURE: _sign(name), "message.timestamp.type": "LogAppendTime", **settings}
    return NewTopic(name, partitions, replicas, config=config)


def _remove(admin: AdminClient, bases: Collection[str]) -> list[str]:
    """Delete the topics of these names and those named after them, the marked ones last; then the groups."""
    if not bases:
        return []
    found = sorted(name for name in _topics_of(admin).topics if _belongs(name, bases))
    for some in ([name for name in found if name not in bases], [name for name in found if name in bases]):
        if some:
            for future in admin.delete_topics(some, operation_timeout=_DEADLINE).values():
                try:
                    future.result(15)
                except KafkaException as error:
                    raise _unavailable(error) from error
    _remove_groups(admin, bases)
    return found


def _remove_groups(admin: AdminClient, bases: Collection[str]) -> None:
    """Groups that are empty. One that still has a dead member is forgotten by the broker, with its topic gone."""
    listed = admin.list_consumer_groups(request_timeout=_DEADLINE).result(15)
    groups = [one.group_id for one in listed.valid if _belongs(one.group_id, bases)]
    if groups:
        for future in admin.delete_consumer_groups(groups, request_timeout=_DEADLINE).values():
            future.exception(15)  # NON_EMPTY_GROUP, or gone already


def _topics_of(admin: AdminClient) -> Any:
    try:
        return admin.list_topics(timeout=_DEADLINE)
    except KafkaException as error:
        raise _unavailable(error) from error


def _unavailable(error: KafkaException) -> BrokerUnavailable:
    return BrokerUnavailable(f"Kafka did not do what the lab asked: {error.args[0].str()}.")
