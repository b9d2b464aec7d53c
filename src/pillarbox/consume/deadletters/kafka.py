"""Dead letters in a Kafka topic. What went back is noted behind them, in the same topic: nothing is removed from it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Final, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...errors import BadUrl, BrokerUnavailable, SourceMissing
from ...publish.kafka.client import Client
from ...publish.kafka.url import KafkaUrl
from .. import dead
from ..dead import dead_name
from ..kafka.records import Headers, readable_headers, text_headers, text_key
from ..kafka.settings import Fetching, Setting, consumer_config, read_url
from ..kafka.sidetopics import SideTopics
from ..retries import retry_name
from .copies import headers_again, note_headers
from .letters import Letter, Order

_log = logging.getLogger("pillarbox.consume.kafka")
_BATCH: Final = 200


class KafkaBox:
    """The topic ``<source>.<consumer>.dead``. It is read twice: for the notes, and for what no note speaks of."""

    def __init__(self, url: KafkaUrl, consumer: str, source: str, *, deadline: float) -> None:
        self._url = url
        self._consumer = consumer
        self._dead = dead_name(source, consumer)
        self._retry = retry_name(source, consumer)
        self._deadline = deadline
        self._producers = Client(url)
        self._side = SideTopics(url, self._producers, deadline=deadline)
        self._client: Consumer | None = None

    @classmethod
    def from_url(
        cls,
        url: str,
        consumer: str,
        source: str,
        *,
        deadline: float = 10.0,
        config: Mapping[str, Setting] | None = None,
    ) -> KafkaBox:
        """Make one from ``kafka://host:port``; ``config`` are further librdkafka settings."""
        return cls(read_url(url, config or {}, deadline=deadline), consumer, source, deadline=deadline)

    def open(self) -> None:
        """Connect. SourceMissing (PB-042) when the consumer has no topic of dead letters."""
        self._producers.connect(self._deadline)
        try:
            there = self._producers.admin().list_topics(timeout=self._deadline).topics
        except KafkaException as error:
            raise self._away(error) from error
        if self._dead not in there:
            raise SourceMissing(
                f"Kafka at {self._url.shown} has no topic {self._dead!r}.",
                fix="Check the names of consumer and source; the consumer makes the topic when it starts.",
            )
        self._side.create([self._retry] if self._retry not in there else [])
        # A group of its own that never commits: the consumer's own group must not see this one come and go.
        settings = consumer_config(self._url, f"{self._consumer}.dead-letters", Fetching(), {})
        try:
            self._client = Consumer({**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 20}, logger=_log)
        except KafkaException as error:
            raise BadUrl(f"{self._url.shown}: {error.args[0].str()}.", fix="Correct the option.") from error

    def letters(self) -> Iterator[Letter]:
        """Those of which no note says that they went back, by partition and offset."""
        ends = self._ends()
        notes = (text_headers(message).get(dead.REPLAYED) for message in self._read(ends))
        gone = {place for place in notes if place is not None}
        for message in self._read(ends):
            headers, place = text_headers(message), f"{message.partition()}/{message.offset()}"
            if dead.REPLAYED not in headers and place not in gone:
                yield Letter(place, text_key(message), headers, len(message.value() or b""), message)

    def send(self, letter: Letter, order: Order) -> None:
        """Copy the record, byte for byte, to the consumer's retry topic."""
        message = _message(letter)
        kept: Headers = [(name, value) for name, value in readable_headers(message) if name not in dead.ADDED]
        self._side.put(self._retry, message.key(), message.value(), [*kept, *headers_again(letter, order)])

    def remove(self, letter: Letter, order: Order) -> None:
        """Write the note behind it, in its own partition."""
        message = _message(letter)
        partition = cast("int", message.partition())
        self._side.put(self._dead, message.key(), None, [*note_headers(letter, order)], partition)

    def close(self) -> None:
        """Let go of the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        self._producers.close()

    def _ends(self) -> dict[int, int]:
        """The first offset behind what is there now, by partition that holds anything."""
        client, found = self._open_client, dict[int, int]()
        try:
            metadata = client.list_topics(self._dead, timeout=self._deadline).topics[self._dead]
            for number in metadata.partitions:
                place = TopicPartition(self._dead, number)
                low, high = client.get_watermark_offsets(place, timeout=self._deadline)
                if low < high:
                    found[number] = high
        except KafkaException as error:
            raise self._away(error) from error
        return found

    def _read(self, ends: Mapping[int, int]) -> Iterator[Message]:
        client, left = self._open_client, dict(ends)
        client.assign([TopicPartition(self._dead, number, OFFSET_BEGINNING) for number in left])
        until = time.monotonic() + self._deadline
        while left:
            for message in client.consume(_BATCH, timeout=0.05):
                number, error = cast("int", message.partition()), message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        left.pop(number, None)
                    continue
                if number in left and cast("int", message.offset()) < left[number]:
                    yield message
                    until = time.monotonic() + self._deadline
            if time.monotonic() > until:
                raise BrokerUnavailable(f"Kafka at {self._url.shown} did not give {self._dead!r} in time.")

    @property
    def _open_client(self) -> Consumer:
        if self._client is None:
            raise BrokerUnavailable("The dead letters are closed.")
        return self._client

    def _away(self, error: KafkaException) -> BrokerUnavailable:
        return BrokerUnavailable(f"Kafka at {self._url.shown} does not answer: {self._producers.reason(error)}.")


def _message(letter: Letter) -> Message:
    assert isinstance(letter.handle, Message)
    return letter.handle
