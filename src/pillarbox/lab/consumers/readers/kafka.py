"""Reading from Kafka with confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ....publish.kafka.url import parse_kafka_url
from ..desk import Desk, Letter

_DEADLINE: Final = 10.0
_AUTO_COMMIT_MS: Final = 100


class KafkaReader:
    """A member of a group. In automatic mode the client's own timer commits what was handed out."""

    def __init__(self, client: Consumer, topic: str, *, automatic: bool) -> None:
        self._client = client
        self._automatic = automatic
        client.subscribe([topic])

    def poll(self, timeout: float, limit: int) -> list[Letter]:
        """The next records."""
        first = self._client.poll(timeout)
        found = [] if first is None else [first, *self._client.consume(limit - 1, timeout=0.2)]
        letters = [letter for message in found if (letter := _letter(message)) is not None]
        if self._automatic and letters:
            self._await_the_timer()
        return letters

    def acknowledge(self, letters: Sequence[Letter]) -> None:
        """Commit the offsets behind them, and wait for the group's answer."""
        ends: dict[tuple[str, int], int] = {}
        for topic, partition, offset in (letter.handle for letter in letters):
            ends[topic, partition] = max(offset + 1, ends.get((topic, partition), 0))
        self._client.commit(offsets=[TopicPartition(*place, end) for place, end in ends.items()], asynchronous=False)

    def close(self) -> None:
        """Leave the group."""
        self._client.close()

    def _await_the_timer(self) -> None:
        """What is handed out counts as done when the timer has struck: the lab waits for it, as slow work would."""
        end = time.monotonic() + _DEADLINE
        while time.monotonic() < end:
            places = [one for one in self._client.position(self._client.assignment()) if one.offset >= 0]
            committed = self._client.committed(places, timeout=_DEADLINE)
            if all(there.offset >= here.offset for here, there in zip(places, committed, strict=True)):
                return
            time.sleep(_AUTO_COMMIT_MS / 1000 / 4)


def _letter(message: Message) -> Letter | None:
    error = message.error()
    if error is None:
        headers: Any = message.headers()
        return Letter(dict(headers)["id"].decode(), (message.topic(), message.partition(), message.offset()))
    if error.fatal() or not error.retriable():
        raise KafkaException(error)
    return None


def open_reader(desk: Desk, *, automatic: bool) -> KafkaReader:
    """Join the group."""
    client = Consumer(
        {
            **parse_kafka_url(desk.broker, deadline=_DEADLINE).config,
            **desk.options.get("config", {}),
            "group.id": desk.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": automatic,
            "auto.commit.interval.ms": _AUTO_COMMIT_MS,
            "isolation.level": "read_committed",
        }
    )
    return KafkaReader(client, desk.source, automatic=automatic)
