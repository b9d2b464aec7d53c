"""How safe an acknowledged event is: a topic's replicas, how many must have it, and how many keep up now.

``acks=all`` waits for the replicas that are in sync, however few they are; ``min.insync.replicas`` is what keeps the
leader from acknowledging alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, but not in its __all__
    AdminClient,
    ConfigResource,
    ResourceType,
    TopicMetadata,
)

from ...errors import BrokerUnavailable
from .client import Client
from .url import parse_kafka_url

log = logging.getLogger("pillarbox.publish.kafka")

MIN_IN_SYNC: Final = "min.insync.replicas"
_ANSWER_SECONDS: Final = 10.0


class TopicReplication(NamedTuple):
    """One topic at one moment. ``in_sync`` and ``replicas`` are broker ids by partition.

    ``min_in_sync`` is the topic's ``min.insync.replicas``, None where the user may not ask (DESCRIBE_CONFIGS).
    """

    topic: str
    replicas: Mapping[int, tuple[int, ...]]
    in_sync: Mapping[int, tuple[int, ...]]
    min_in_sync: int | None

    @property
    def replication_factor(self) -> int:
        """Replicas of the partition that has the fewest."""
        return min(map(len, self.replicas.values()), default=0)

    @property
    def fewest_in_sync(self) -> int:
        """Replicas in sync, in the partition that has the fewest; 0 where one has no leader."""
        return min(map(len, self.in_sync.values()), default=0)

    @property
    def acknowledged_by(self) -> int | None:
        """How many replicas have an event at least when it is acknowledged; None when that is not known."""
        if self.replication_factor <= 1:
            return self.replication_factor
        # Brokers cap min.insync.replicas at the number of replicas (KIP-966).
        return None if self.min_in_sync is None else min(self.min_in_sync, self.replication_factor)

    def warning(self) -> str | None:
        """What is dangerous about the topic, as a sentence; None when no replica would acknowledge alone."""
        if self.acknowledged_by is None or self.acknowledged_by > 1:
            return None
        if self.replication_factor <= 1:
            return (
                f"topic {self.topic!r} has a single replica (replication factor 1): it acknowledges alone, and events "
                "that were acknowledged are lost with its disk. Raise the replication factor to 3."
            )
        return (
            f"one replica of topic {self.topic!r} alone would acknowledge (min.insync.replicas {self.min_in_sync}, "
            f"replication factor {self.replication_factor}): events that were acknowledged while the others were "
            "behind are lost with its disk. Set min.insync.replicas=2 for the topic."
        )

    def __str__(self) -> str:
        needed = "unknown" if self.min_in_sync is None else self.min_in_sync
        return (
            f"topic {self.topic!r}: {len(self.replicas)} partitions, replication factor {self.replication_factor}, "
            f"{MIN_IN_SYNC} {needed}, in sync now {self.fewest_in_sync} at least"
        )


def observe_topics(url: str, topics: Iterable[str], *, deadline: float = 10.0) -> tuple[TopicReplication, ...]:
    """Ask the cluster at ``url`` (``kafka://…``) about these topics, once; those that do not exist are left out.

    Raises BadUrl (PB-002), AccessRefused (PB-008), or BrokerUnavailable (PB-005) when no answer came within
    ``deadline`` seconds or so.
    """
    client = Client(parse_kafka_url(url, deadline=deadline))
    try:
        client.connect(deadline)
        return observe(client, topics, seconds=deadline)
    finally:
        client.close()


def observe(client: Client, topics: Iterable[str], *, seconds: float) -> tuple[TopicReplication, ...]:
    """The same through a client that is there already."""
    admin = client.new_admin()
    try:
        there = admin.list_topics(timeout=seconds).topics
        found = {name: there[name] for name in topics if name in there and there[name].error is None}
        asked = {name: _ask(admin, name, seconds) for name in found}
    except KafkaException as error:
        raise BrokerUnavailable(f"Kafka does not answer: {client.reason(error)}.") from error
    return tuple(_seen(name, metadata, _answer(asked[name], seconds)) for name, metadata in found.items())


class Watch:
    """Tells the log of each topic once: what it is like, as information, and as a warning what is dangerous about it.

    It asks for ``min.insync.replicas`` on a thread of its own, and with a client that is gone when the answers are
    there: a process that is forked while such a client lives crashes when it ends.
    """

    def __init__(self, make_admin: Callable[[], AdminClient]) -> None:
        self._make_admin = make_admin
        self._told: set[str] = set()
        self._waiting: list[tuple[str, TopicMetadata]] = []
        self._busy = False
        self._lock = threading.Lock()

    def notice(self, name: str, metadata: TopicMetadata) -> None:
        """The topic was found, and this is what the brokers say of it."""
        if name in self._told:
            return
        self._told.add(name)
        with self._lock:
            self._waiting.append((name, metadata))
            if self._busy:
                return
            self._busy = True
        threading.Thread(target=self._run, name="pillarbox-kafka-replication", daemon=True).start()

    def _run(self) -> None:
        admin = self._make_admin()
        while True:
            with self._lock:
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._busy = False
                    return
            asked = [(name, metadata, _ask(admin, name, _ANSWER_SECONDS)) for name, metadata in batch]
            for name, metadata, future in asked:
                _tell(_seen(name, metadata, _answer(future, _ANSWER_SECONDS + 1)))


def _tell(seen: TopicReplication) -> None:
    log.info("%s", seen)
    if warning := seen.warning():
        log.warning("%s", warning)


def _ask(admin: AdminClient, name: str, seconds: float) -> Future[Any]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    asked: Mapping[Any, Future[Any]] = admin.describe_configs([resource], request_timeout=seconds)
    return asked[resource]


def _answer(future: Future[Any], seconds: float) -> int | None:
    """None: not allowed to ask, or no answer."""
    try:
        return int(future.result(seconds)[MIN_IN_SYNC].value)
    except (KafkaException, TimeoutError) as error:
        log.debug("%s is not known: %s", MIN_IN_SYNC, error)
        return None


def _seen(name: str, metadata: TopicMetadata, min_in_sync: int | None) -> TopicReplication:
    partitions = metadata.partitions
    return TopicReplication(
        name,
        {number: tuple(one.replicas) for number, one in partitions.items()},
        {number: tuple(one.isrs) if one.leader >= 0 else () for number, one in partitions.items()},
        min_in_sync,
    )
