"""The face of the Kafka source. One thread uses it; librdkafka sends the heartbeats from its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, cast

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from ...errors import AccessRefused, BadUrl, BrokerUnavailable, SourceMissing
from ...ports import Incoming
from ...publish.kafka.client import Client as ProducerClient
from ...publish.kafka.url import KafkaUrl
from ..dead import dead_headers, dead_name
from .deadtopics import DeadTopics, Headers
from .partitions import Partitions, Place, Position
from .settings import Setting, consumer_config, read_url

_log = logging.getLogger("pillarbox.consume.kafka")

CLOSE_SECONDS: Final = 5.0
_MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


class Record(tuple[Position, Message]):
    """The position and the message as the client gave it, for the dead-letter copy."""

    __slots__ = ()


class KafkaSource:
    """Topics at ``kafka://host:port,host:port?option=value``. They must exist; dead-letter topics are created.

    ``config`` are further librdkafka settings, e.g. ``{"session.timeout.ms": 30000}``. A handler may take up to
    ``max.poll.interval.ms`` (5 minutes); after that the group gives its partitions away, and the event comes again.
    ``deadline`` (seconds) bounds each wait for the cluster.
    """

    def __init__(self, url: KafkaUrl, consumer: str, sources: Sequence[str], *, deadline: float) -> None:
        self._url = url
        self._consumer = consumer
        self._sources = tuple(sources)
        self._deadline = deadline
        self._producers = ProducerClient(url)
        self._dead = DeadTopics(self._producers, deadline=deadline)
        self._partitions = Partitions()
        self._fetched: deque[Message] = deque()  # came while nothing was asked for
        self._paused: set[Place] = set()
        self._uncommitted: dict[Place, int] = {}
        self._client: Client | None = None
        self._told: set[int] = set()

    @classmethod
    def from_url(
        cls,
        url: str,
        consumer: str,
        sources: Sequence[str],
        *,
        deadline: float = 10.0,
        config: Mapping[str, Setting] | None = None,
    ) -> KafkaSource:
        """Make one from a URL; see :func:`pillarbox.publish.kafka.url.parse_kafka_url`."""
        return cls(read_url(url, config or {}, deadline=deadline), consumer, sources, deadline=deadline)

    def open(self) -> None:
        """Check the topics and subscribe. Raises SourceMissing (PB-042), BrokerUnavailable (PB-005), AccessRefused
        (PB-008) or BadUrl (PB-002)."""
        client = self._client = self._make_client()
        self._producers.connect(self._deadline)
        there = self._existing_topics()
        for name in self._sources:
            if name not in there:
                raise SourceMissing(f"Kafka at {self._url.shown} has no topic {name!r}.")
        self._dead.create([dead for dead in map(self._dead_name, self._sources) if dead not in there])
        client.subscribe(
            list(self._sources), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def poll(self, timeout: float, limit: int) -> list[Incoming]:
        """The next messages; also where the group's rebalances are taken part in."""
        if limit == 0:
            self._serve(timeout)
            return []
        self._resume()
        self._commit_again()
        found = self._take(limit)
        if not found:
            message = self._open_client.poll(timeout)
            # Before the next call, which may take part in a rebalance.
            found = [] if message is None else self._incoming([message])
        if found and len(found) < limit:
            found += self._incoming(self._open_client.consume(limit - len(found), timeout=0))
        return found

    def holds(self, incoming: Incoming) -> bool:
        """False once the partition was revoked: the message comes again at its new owner."""
        return self._partitions.holds(_record(incoming)[0])

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        """Commit how far the partitions that are still held are finished, and wait for the group's answer."""
        self._uncommitted |= self._partitions.finish([_record(incoming)[0] for incoming in done])
        self._commit()

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        """Copy the record, byte for byte and with its headers, to the dead-letter topic and wait for the report."""
        position, message = _record(incoming)
        added = dead_headers(
            source=incoming.source,
            consumer=self._consumer,
            position=f"{position.holding.place[1]}/{position.offset}",
            reason=reason,
            attempts=attempts,
            at=datetime.now(UTC),
        )
        names = {name for name, _ in added}
        headers = [(name, value) for name, value in readable_headers(message) if name not in names]
        self._dead.put(self._dead_name(incoming.source), message.key(), message.value(), [*headers, *added])

    def close(self) -> None:
        """Leave the group; unfinished messages come again elsewhere."""
        client, self._client = self._client, None
        if client is not None:
            # On a thread of its own: with frozen brokers the client would wait for its farewell.
            leaving = threading.Thread(target=client.close, name=f"pillarbox-kafka-leave-{self._consumer}", daemon=True)
            leaving.start()
            leaving.join(CLOSE_SECONDS)
        self._producers.close()

    # Committing -----------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        held = set(self._partitions.held)
        self._uncommitted = {place: offset for place, offset in self._uncommitted.items() if place in held}
        if not self._uncommitted:
            return
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in self._uncommitted.items()]
        try:
            answers = self._open_client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise BrokerUnavailable(f"The offsets were not committed: {error.args[0].str()}.") from error
        for answer in answers or ():
            if answer.error is not None:
                raise BrokerUnavailable(f"The offset of {answer.topic} was not committed: {answer.error.str()}.")
        self._uncommitted.clear()

    def _commit_again(self) -> None:
        """What could not be committed, e.g. in the middle of a rebalance, goes with the next poll."""
        try:
            self._commit()
        except BrokerUnavailable as error:
            _log.warning("consumer %s: %s", self._consumer, error)

    # Waiting --------------------------------------------------------------------------------------------------------

    def _serve(self, timeout: float) -> None:
        """Stay in the group without taking messages."""
        if timeout > 0:
            self._pause()
        until = time.monotonic() + timeout
        while True:
            message = self._open_client.poll(max(0.0, until - time.monotonic()))
            if message is not None:  # of a partition that was assigned just now
                self._fetched.append(message)
                self._pause()
            if time.monotonic() >= until:
                return

    def _pause(self) -> None:
        self._open_client.pause(_topic_partitions(set(self._partitions.held) - self._paused))
        self._paused = set(self._partitions.held)

    def _resume(self) -> None:
        if self._paused:
            self._open_client.resume(_topic_partitions(self._paused))
            self._paused = set()

    # What comes -----------------------------------------------------------------------------------------------------

    def _take(self, limit: int) -> list[Incoming]:
        return self._incoming([self._fetched.popleft() for _ in range(min(limit, len(self._fetched)))])

    def _incoming(self, messages: Iterable[Message]) -> list[Incoming]:
        return [incoming for incoming in map(self._one, messages) if incoming is not None]

    def _one(self, message: Message) -> Incoming | None:
        error = message.error()
        if error is not None:
            self._on_error(error)
            return None
        topic, offset = cast("str", message.topic()), cast("int", message.offset())
        position = self._partitions.hand_out(_place(message), offset)
        if position is None:
            return None
        self._told.clear()
        key = message.key()
        return Incoming(
            topic,
            {name: _text(value) for name, value in readable_headers(message) if value is not None},
            message.value() or b"",
            None if key is None else _text(key),
            Record((position, message)),
            redelivered=False,
        )

    def _on_assign(self, _client: Client, partitions: list[TopicPartition]) -> None:
        self._partitions.assigned([(p.topic, p.partition) for p in partitions])

    def _on_revoke(self, _client: Client, partitions: list[TopicPartition]) -> None:
        gone = {(p.topic, p.partition) for p in partitions}
        lost = self._partitions.revoked(gone)
        self._paused -= gone
        self._fetched = deque(message for message in self._fetched if _place(message) not in gone)
        if lost:
            _log.info("consumer %s: %d messages in hand went to another member", self._consumer, lost)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            raise BrokerUnavailable(f"Kafka's client broke for good: {error.str()}.", fix="Start the consumer again.")
        if error.code() not in self._told:
            _log.warning("consumer %s: Kafka at %s: %s", self._consumer, self._url.shown, error.str())
        self._told.add(error.code())

    # The clients ----------------------------------------------------------------------------------------------------

    @property
    def _open_client(self) -> Client:
        if self._client is None:
            raise BrokerUnavailable("The source is closed.")
        return self._client

    def _make_client(self) -> Client:
        try:
            return Client(consumer_config(self._url, self._consumer, self._on_error), logger=_log)
        except KafkaException as error:
            raise BadUrl(
                f"{self._url.shown}: {error.args[0].str()}.", fix="Correct the option; options are those of librdkafka."
            ) from error

    def _existing_topics(self) -> set[str]:
        # All topics, because asking for one by name may create it (auto.create.topics.enable).
        try:
            topics = self._producers.admin().list_topics(timeout=self._deadline).topics
        except KafkaException as error:
            raise BrokerUnavailable(f"Kafka at {self._url.shown} does not answer: {error.args[0].str()}.") from error
        for name in self._sources:
            refused = topics[name].error if name in topics else None
            if refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise AccessRefused(f"Kafka at {self._url.shown} refused access to the topic {name!r}.")
        return {name for name, topic in topics.items() if topic.error is None or topic.error.code() not in _MISSING}

    def _dead_name(self, source: str) -> str:
        return dead_name(source, self._consumer)


def _record(incoming: Incoming) -> Record:
    assert isinstance(incoming.position, Record)
    return incoming.position


def _place(message: Message) -> Place:
    return cast("str", message.topic()), cast("int", message.partition())


def readable_headers(message: Message) -> Headers:
    """The record's headers; none when the client cannot read them."""
    try:
        return cast("Headers", message.headers() or [])
    except (SystemError, UnicodeDecodeError):
        # The client's way to say that a header's name is no UTF-8. The others cannot be had without it.
        return []


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _topic_partitions(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, number in places]
