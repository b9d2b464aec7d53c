"""The face of the Kafka source. One thread uses it; librdkafka sends the heartbeats from its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, cast

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from ...errors import BadConsumer, BrokerUnavailable
from ...ports import Incoming
from ...publish.kafka.client import Client as ProducerClient
from ...publish.kafka.url import KafkaUrl
from ..dead import dead_headers, dead_name
from ..retries import HEADERS, read_retry_headers, retry_headers, retry_name
from ..waiting import WaitingRoom
from .commits import Commits
from .opening import MISSING, make_client, topics_there
from .partitions import Partitions, Place
from .purging import Purging
from .records import Headers, Record, place_of, readable_headers, text_headers, text_key
from .settings import Fetching, Setting, read_url
from .sidetopics import SideTopics
from .stash import Stash

_log = logging.getLogger("pillarbox.consume.kafka")

CLOSE_SECONDS: Final = 5.0
REVOKE_SECONDS: Final = 3.0
"""How long a rebalance may be held up by the last offsets."""
_FATAL: Final = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID})
LOOKS: Final = 2
LOOK_AGAIN_SECONDS: Final = 1.0


class KafkaSource:
    """Topics at ``kafka://host:port,host:port?option=value``. They must exist; the consumer's own topics for dead
    letters and retries are created.

    ``prefetch`` messages and ``prefetch_bytes`` wait in the client. ``instance_id``, different in each process, makes
    static members: a restart within 45 s (``session.timeout.ms``) moves no partition, but one that stays away holds its
    partitions up for so long. ``config`` are further librdkafka settings, e.g. ``{"session.timeout.ms": 30000}``. A
    member that does not poll for ``max.poll.interval.ms`` (5 minutes) loses its partitions, and the events come again.
    ``deadline`` (seconds) bounds each wait for the cluster.
    """

    def __init__(
        self, url: KafkaUrl, consumer: str, sources: Sequence[str], *, deadline: float, fetching: Fetching
    ) -> None:
        if fetching.prefetch < 1 or fetching.prefetch_bytes < 1:
            raise BadConsumer("prefetch and prefetch_bytes are at least 1.", fix="Correct the consumer's options.")
        self._url = url
        self._consumer = consumer
        self._sources = tuple(sources)
        self._retries = {retry_name(source, consumer): source for source in sources}
        self._deadline = deadline
        self._fetching = fetching
        self._producers = ProducerClient(url)
        self._side = SideTopics(url, self._producers, deadline=deadline)
        self._partitions = Partitions()
        self._commits = Commits(consumer, self._confirmed, time.monotonic)
        self._purging = Purging(self._producers.admin, time.monotonic)
        self._stash = Stash()
        self._room = WaitingRoom()
        self._paused: set[Place] = set()
        self._left_paused: set[Place] = set()  # the client keeps a pause beyond the assignment
        self._unsure: set[Place] = set()  # came back so
        self._client: Client | None = None
        self._told: set[int] = set()
        self._looks = LOOKS
        self._looked_at = 0.0
        self._broken: str | None = None

    @classmethod
    def from_url(
        cls,
        url: str,
        consumer: str,
        sources: Sequence[str],
        *,
        deadline: float = 10.0,
        config: Mapping[str, Setting] | None = None,
        **fetching: Any,
    ) -> KafkaSource:
        """Make one from a URL; see :func:`pillarbox.publish.kafka.url.parse_kafka_url`."""
        settings = read_url(url, config or {}, deadline=deadline)
        return cls(settings, consumer, sources, deadline=deadline, fetching=Fetching(**fetching))

    def open(self) -> None:
        """Check the topics and subscribe. Raises SourceMissing (PB-042), BrokerUnavailable (PB-005), AccessRefused
        (PB-008) or BadUrl (PB-002)."""
        callbacks = {"error_cb": self._on_error, "on_commit": self._on_commit}
        client = self._client = make_client(self._url, self._consumer, self._fetching, callbacks)
        self._producers.connect(self._deadline)
        there = topics_there(self._producers, self._url, self._sources, self._deadline)
        own = [*map(self._dead_name, self._sources), *self._retries]
        missing = [name for name in own if name not in there]
        self._side.create(missing)
        if missing:
            self._side.wait_until_known({*self._sources, *own})
        client.subscribe(
            [*self._sources, *self._retries],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def poll(self, timeout: float, limit: int) -> list[Incoming]:
        """The next messages; also where the group's rebalances are taken part in."""
        if self._broken is not None:
            raise BrokerUnavailable(f"Kafka's client broke for good: {self._broken}.", fix="Start the consumer again.")
        self._commits.send(self._open_client)
        self._purging.run()
        self._look()
        if limit == 0:
            self._serve(timeout)
            return []
        now = time.time()
        found = self._room.take(now, limit)
        found += self._incoming(self._stash.take(limit - len(found)))
        self._adjust_pauses()
        if not found:
            message = self._open_client.poll(self._room.next_in(now, timeout))
            # Before the next call, which may take part in a rebalance.
            found = [] if message is None else self._incoming([message])
        if found and len(found) < limit:
            found += self._incoming(self._open_client.consume(limit - len(found), timeout=0))
        return found

    def holds(self, incoming: Incoming) -> bool:
        """False once the partition was revoked: the message comes again at its new owner."""
        return self._partitions.holds(_record(incoming).position)

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        """Commit how far the partitions that are still held are finished; the group's answer comes with a later poll.

        What it refuses is sent again, and what is left when the source closes is waited for.
        """
        self._commits.note(self._partitions.finish(_record(incoming).position for incoming in done))
        self._commits.send(self._open_client)

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        """Copy the record, byte for byte and with its headers, to the dead-letter topic and wait for the report."""
        added = dead_headers(
            source=incoming.source,
            consumer=self._consumer,
            position=_record(incoming).original,
            reason=reason,
            attempts=attempts,
            at=datetime.now(UTC),
        )
        self._copy(self._dead_name(incoming.source), incoming, added)

    def put_back(self, incoming: Incoming, seconds: float, reason: str, attempts: int) -> None:
        """Copy the record to the consumer's retry topic, likewise."""
        original = _record(incoming).original
        now = datetime.now(UTC)
        added = retry_headers(seconds=seconds, now=now, position=original, reason=reason, attempts=attempts)
        self._copy(retry_name(incoming.source, self._consumer), incoming, added)

    def _copy(self, topic: str, incoming: Incoming, added: list[tuple[str, str]]) -> None:
        record = _record(incoming)
        ours = {name for name, _ in added}
        if record.position.holding.place[0] in self._retries:
            ours |= HEADERS
        headers: Headers = [(name, value) for name, value in readable_headers(record.message) if name not in ours]
        self._side.put(topic, record.message.key(), record.message.value(), [*headers, *added])

    def close(self) -> None:
        """Leave the group; unfinished messages come again elsewhere."""
        client, self._client = self._client, None
        if client is not None:
            # On a thread of its own: with frozen brokers the client would wait for its farewell.
            leaving = threading.Thread(
                target=self._leave, args=(client,), name=f"pillarbox-kafka-leave-{self._consumer}", daemon=True
            )
            leaving.start()
            leaving.join(CLOSE_SECONDS)
        self._producers.close()

    def _leave(self, client: Client) -> None:
        self._commits.farewell(client)
        client.close()

    def _look(self) -> None:
        """Until the client has seen all topics twice in a row: one that was made just now is not known to every broker
        yet, and the client by itself looks again much later."""
        now = time.monotonic()
        if self._looks and now - self._looked_at >= LOOK_AGAIN_SECONDS:
            self._looked_at = now
            with suppress(KafkaException):  # no broker answers; the client says so by itself
                seen = self._open_client.list_topics(timeout=LOOK_AGAIN_SECONDS).topics
                self._looks = self._looks - 1 if seen.keys() >= {*self._sources, *self._retries} else LOOKS

    # Waiting --------------------------------------------------------------------------------------------------------

    def _serve(self, timeout: float) -> None:
        """Stay in the group without handing out messages; those that come are kept for later, up to a bound."""
        until = time.monotonic() + timeout
        while True:
            self._adjust_pauses()
            message = self._open_client.poll(max(0.0, until - time.monotonic()))
            if message is not None:
                self._stash.add(message)
            if time.monotonic() >= until:
                return

    def _adjust_pauses(self) -> None:
        """Fetch no more than there is room for."""
        held = self._partitions.held
        if self._stash.full:
            wanted = set(held)
        elif self._room.full:
            wanted = {place for place in held if place[0] in self._retries}
        else:
            wanted = set()
        if wanted != self._paused or self._unsure:
            self._open_client.pause(_topic_partitions(wanted - self._paused))
            self._open_client.resume(_topic_partitions((self._paused | self._unsure) - wanted))
            self._left_paused -= self._unsure
            self._paused, self._unsure = wanted, set()

    # What comes -----------------------------------------------------------------------------------------------------

    def _incoming(self, messages: Iterable[Message]) -> list[Incoming]:
        return [incoming for incoming in map(self._one, messages) if incoming is not None]

    def _one(self, message: Message) -> Incoming | None:
        error = message.error()
        if error is not None:
            if error.code() in MISSING:
                self._looks = LOOKS
                if message.topic() in self._retries:
                    return None  # made just now, and not known to every broker yet
            self._on_error(error)
            return None
        (topic, number), offset = place_of(message), cast("int", message.offset())
        position = self._partitions.hand_out((topic, number), offset)
        if position is None:
            return None
        self._told.clear()
        headers, here = text_headers(message), f"{number}/{offset}"
        incoming = Incoming(topic, headers, message.value() or b"", text_key(message), None, redelivered=False)
        if topic not in self._retries:
            return incoming._replace(position=Record(position, message, here))
        return self._again(incoming, Record(position, message, here))

    def _again(self, incoming: Incoming, record: Record) -> Incoming | None:
        """From the retry topic: as it was at first, now or when it is due."""
        waited = read_retry_headers(incoming.headers)
        original = incoming._replace(
            source=self._retries[incoming.source],
            headers={name: value for name, value in incoming.headers.items() if name not in HEADERS},
            position=record._replace(original=waited.position or record.original),
            attempts=waited.attempts,
        )
        if waited.due <= time.time():
            return original
        self._room.add(original, waited.due)
        return None

    # What the group says --------------------------------------------------------------------------------------------

    def _on_assign(self, _client: Client, partitions: list[TopicPartition]) -> None:
        places = _places(partitions)
        self._partitions.assigned(places)
        self._unsure |= self._left_paused.intersection(places)
        if partitions:
            _log.info("consumer %s: the group gave it %s", self._consumer, _listed(partitions))

    def _on_revoke(self, client: Client, partitions: list[TopicPartition]) -> None:
        self._commits.revoked(client, _places(partitions), REVOKE_SECONDS)
        self._forget(partitions, "took back")

    def _on_lost(self, _client: Client, partitions: list[TopicPartition]) -> None:
        self._commits.lost(_places(partitions))
        self._forget(partitions, "has given away")

    def _forget(self, partitions: list[TopicPartition], what: str) -> None:
        gone = set(_places(partitions))
        lost = self._partitions.revoked(gone)
        self._left_paused |= self._paused & gone
        self._paused -= gone
        self._unsure -= gone
        self._stash.forget(gone)
        self._room.forget(lambda incoming: not self.holds(incoming))
        if partitions:
            text = "consumer %s: the group %s %s; %d messages in hand come again there"
            _log.info(text, self._consumer, what, _listed(partitions), lost)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._commits.answered(error, partitions)

    def _confirmed(self, offsets: Mapping[Place, int]) -> None:
        self._purging.note({place: offset for place, offset in offsets.items() if place[0] in self._retries})

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in _FATAL:
            self._broken = error.str()  # raised by the next poll: this may be a callback
        if error.code() not in self._told:
            _log.warning("consumer %s: Kafka at %s: %s", self._consumer, self._url.shown, error.str())
        self._told.add(error.code())

    # The clients ----------------------------------------------------------------------------------------------------

    @property
    def _open_client(self) -> Client:
        if self._client is None:
            raise BrokerUnavailable("The source is closed.")
        return self._client

    def _dead_name(self, source: str) -> str:
        return dead_name(source, self._consumer)


def _record(incoming: Incoming) -> Record:
    assert isinstance(incoming.position, Record)
    return incoming.position


def _places(partitions: Iterable[TopicPartition]) -> list[Place]:
    return [(partition.topic, partition.partition) for partition in partitions]


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{partition.topic}/{partition.partition}" for partition in partitions)


def _topic_partitions(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, number in places]
