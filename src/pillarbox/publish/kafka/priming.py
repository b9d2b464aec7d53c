"""Partitions where a broker has accepted something from the ordered producer, and so refuses a gap behind it.

A broker that has nothing yet from a producer id takes any first sequence number. The client builds the next request of
a partition while the first is under way, whatever ``max.in.flight`` says; if the first one is then refused, the second
is accepted all the same, and a fatal error comes too late. So the first message of a stream in such a partition has to
be confirmed before the next is handed over.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from ...embedded.murmur2 import partition_of_key

PRIMED_FOR: Final = 300.0
"""Seconds. Brokers forget a producer after ``producer.id.expiration.ms`` of silence, a day unless configured."""


class Primed:
    """What one producer has primed. ``by_murmur2``: the client puts a key where Kafka's Java client does."""

    def __init__(self, *, by_murmur2: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._by_murmur2 = by_murmur2
        self._monotonic = monotonic
        self._since: dict[str, dict[int, float]] = defaultdict(dict)

    def partitions(self, topic: str) -> frozenset[int]:
        """Those of the topic that are primed."""
        enough = self._monotonic() - PRIMED_FOR
        return frozenset(number for number, since in self._since[topic].items() if since > enough)

    def where(self, key: str, count: int) -> int | None:
        """The partition of the key in a topic with so many; None where only the client knows."""
        return partition_of_key(key, count) if self._by_murmur2 and count else None

    def note(self, topic: str, partition: int) -> None:
        """A message was confirmed there."""
        self._since[topic][partition] = self._monotonic()

    def forget(self) -> None:
        """The producer was replaced."""
        self._since.clear()


def unprimed(primed: Primed, count: Callable[[str], int], topics: Iterable[str]) -> dict[str, frozenset[int]]:
    """The topics with a partition that is not primed, and those that are. ``count``: how many a topic has."""
    found = {name: primed.partitions(name) for name in topics}
    return {name: numbers for name, numbers in found.items() if len(numbers) < max(1, count(name))}
