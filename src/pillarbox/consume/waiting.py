"""Messages of a retry topic that were read before they are due. Bounded: who fills it stops reading when it is full."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

from ..ports import Incoming

MOST: Final = 1_000
"""Messages. They are read ahead so that one that waits for long does not hold up those behind it."""

MOST_BYTES: Final = 16 * 1024 * 1024


class WaitingRoom:
    """Hands messages out in the order of their due time (seconds since 1970, like ``now``).

    >>> room = WaitingRoom()
    >>> room.add(Incoming("orders", {}, b"later", None, 1, False), due=20.0)
    >>> room.add(Incoming("orders", {}, b"sooner", None, 2, False), due=10.0)
    >>> [one.body for one in room.take(now=12.0, limit=5)]
    [b'sooner']
    """

    def __init__(self, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._heap: list[tuple[float, int, Incoming]] = []
        self._bytes = 0
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def full(self) -> bool:
        """True when nothing more should be read ahead."""
        return len(self._heap) >= self._most or self._bytes >= self._most_bytes

    def add(self, incoming: Incoming, due: float) -> None:
        """Keep it until ``due``."""
        heapq.heappush(self._heap, (due, next(self._order), incoming))
        self._bytes += len(incoming.body)

    def take(self, now: float, limit: int) -> list[Incoming]:
        """Up to ``limit`` of those that are due."""
        found: list[Incoming] = []
        while self._heap and len(found) < limit and self._heap[0][0] <= now:
            _, _, incoming = heapq.heappop(self._heap)
            self._bytes -= len(incoming.body)
            found.append(incoming)
        return found

    def next_in(self, now: float, at_most: float) -> float:
        """Seconds until the next one is due, from 0 to ``at_most``."""
        return min(max(self._heap[0][0] - now, 0.0), at_most) if self._heap else at_most

    def forget(self, gone: Callable[[Incoming], bool]) -> None:
        """Drop those that the broker took back."""
        self._heap = [entry for entry in self._heap if not gone(entry[2])]
        heapq.heapify(self._heap)
        self._bytes = sum(len(incoming.body) for _, _, incoming in self._heap)
