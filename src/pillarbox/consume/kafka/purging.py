"""Deleting from the retry topics what is done with: they keep everything else for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from .partitions import Place

_log = logging.getLogger("pillarbox.consume.kafka")

EVERY_SECONDS: Final = 60.0


class Purging:
    """Asks the cluster now and then, and does not wait. A cluster that refuses is asked no more."""

    def __init__(self, admin: Callable[[], AdminClient], monotonic: Callable[[], float]) -> None:
        self._admin = admin
        self._monotonic = monotonic
        self._up_to: dict[Place, int] = {}
        self._next = 0.0
        self._refused = False

    def note(self, offsets: Mapping[Place, int]) -> None:
        """The group has committed these offsets of retry topics."""
        if not self._refused:
            self._up_to |= offsets

    def run(self) -> None:
        """Delete what is below the noted offsets, if it is time."""
        if not self._up_to or self._monotonic() < self._next:
            return
        self._next = self._monotonic() + EVERY_SECONDS
        below = [TopicPartition(topic, number, offset) for (topic, number), offset in self._up_to.items()]
        self._up_to = {}
        for future in self._admin().delete_records(below, request_timeout=10).values():
            future.add_done_callback(self._answered)

    def _answered(self, future: Future[object]) -> None:
        error = future.exception()
        if isinstance(error, KafkaException) and not self._refused:
            self._refused = True
            _log.warning("what is done with stays in the retry topics: %s", error.args[0].str())
