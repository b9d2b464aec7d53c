"""What the client delivered while nobody asked for messages: kept for the next poll."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from confluent_kafka import Message

from .partitions import Place
from .records import place_of

MOST: Final = 1_000
MOST_BYTES: Final = 16 * 1024 * 1024


class Stash:
    """In the order of arrival. When it is full, fetching has to pause, which throws away what was fetched ahead."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self.size = 0

    @property
    def full(self) -> bool:
        """True when there is no room for more."""
        return len(self._messages) >= MOST or self.size >= MOST_BYTES

    def add(self, message: Message) -> None:
        """Keep it."""
        self._messages.append(message)
        self.size += _size(message)

    def take(self, limit: int) -> list[Message]:
        """The first ones."""
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        self.size -= sum(map(_size, taken))
        return taken

    def forget(self, gone: Collection[Place]) -> None:
        """Drop those of partitions that left."""
        self._messages = deque(message for message in self._messages if place_of(message) not in gone)
        self.size = sum(map(_size, self._messages))


def _size(message: Message) -> int:
    return len(message.value() or b"")
