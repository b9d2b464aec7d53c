"""Offsets on their way to the group: one request at a time, sent again until the group has them or the partition left.

Nobody waits for them, except when partitions are given away or the member leaves, and then not for long: an offset that
is not committed costs a redelivery, which the inbox recognises.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from .partitions import Place

_log = logging.getLogger("pillarbox.consume.kafka")

AGAIN_SECONDS: Final = 1.0
"""Between two attempts at offsets that the group refused, e.g. in the middle of a rebalance."""


class Commits:
    """Used by one thread; ``confirmed`` is told what the group has."""

    def __init__(
        self, consumer: str, confirmed: Callable[[Mapping[Place, int]], None], monotonic: Callable[[], float]
    ) -> None:
        self._consumer = consumer
        self._confirmed = confirmed
        self._monotonic = monotonic
        self._waiting: dict[Place, int] = {}
        self._sent: dict[Place, int] = {}
        self._not_before = 0.0

    def note(self, offsets: Mapping[Place, int]) -> None:
        """Everything below these offsets is finished; send says it to the group."""
        self._waiting |= offsets

    def send(self, client: Client) -> None:
        """Send what waits, unless a request is under way."""
        if not self._waiting or self._sent or self._monotonic() < self._not_before:
            return
        self._sent, self._waiting = self._waiting, {}
        try:
            client.commit(offsets=_topic_partitions(self._sent), asynchronous=True)
        except KafkaException as error:
            self._failed(list(self._sent), error.args[0])

    def answered(self, error: KafkaError | None, partitions: Iterable[TopicPartition]) -> None:
        """The group's answer, as the client's callback brings it."""
        had: dict[Place, int] = {}
        for partition in partitions:
            place, refused = (partition.topic, partition.partition), partition.error or error
            if self._sent.get(place) != partition.offset:
                continue  # revoked meanwhile, or the answer to a farewell
            if refused is None:
                had[place] = self._sent.pop(place)
            else:
                self._failed([place], refused)
        if had:
            self._confirmed(had)

    def revoked(self, client: Client, places: Iterable[Place], seconds: float) -> None:
        """Commit what these partitions have, wait at most ``seconds``, and forget them: they are another's."""
        left: dict[Place, int] = {}
        for place in places:
            # What is noted last is the furthest; a request under way may be lost with the generation.
            for known in (self._sent, self._waiting):
                if place in known:
                    left[place] = known.pop(place)
        if left:
            started = time.monotonic()
            thread = threading.Thread(target=self._finally, args=(client, left), daemon=True)
            thread.start()
            thread.join(seconds)
            if thread.is_alive():
                spent = time.monotonic() - started
                _log.warning("consumer %s: no answer to the last offsets in %.1f s", self._consumer, spent)

    def lost(self, places: Iterable[Place]) -> None:
        """Forget these partitions: another member has them already."""
        for place in places:
            self._waiting.pop(place, None)
            self._sent.pop(place, None)

    def farewell(self, client: Client) -> None:
        """Commit all that is left, however long it takes."""
        left = self._sent | self._waiting
        self._sent, self._waiting = {}, {}
        if left:
            self._finally(client, left)

    def _finally(self, client: Client, offsets: Mapping[Place, int]) -> None:
        try:
            answers = client.commit(offsets=_topic_partitions(offsets), asynchronous=False)
        except (KafkaException, RuntimeError) as error:  # RuntimeError: the client was closed meanwhile
            _log.warning("consumer %s: the last offsets were not committed: %s", self._consumer, error)
            return
        for answer in answers or ():
            if answer.error is not None:
                text = "consumer %s: the last offset of %s was not committed: %s"
                _log.warning(text, self._consumer, answer.topic, answer.error.str())

    def _failed(self, places: Iterable[Place], error: KafkaError) -> None:
        for place in places:
            self._waiting.setdefault(place, self._sent.pop(place))
        if self._monotonic() >= self._not_before:
            _log.warning("consumer %s: offsets were not committed, again soon: %s", self._consumer, error.str())
        self._not_before = self._monotonic() + AGAIN_SECONDS


def _topic_partitions(offsets: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
