"""What was delivered and is not finished. The server gives it to others unless it hears of it within its ack_wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Delivery(NamedTuple):
    """A message as one delivery of it, by this consumer of its stream: ``reply`` is where its acknowledgement goes.

    ``before``: where it stood at first, of one that comes from the retry stream.
    """

    stream: str
    durable: str
    sequence: int
    reply: str
    before: str = ""

    @property
    def place(self) -> str:
        """Where this very message stands."""
        return f"{self.stream}/{self.sequence}"

    @property
    def original(self) -> str:
        """Where it stood at first."""
        return self.before or self.place


@dataclass(slots=True)
class _Held:
    delivery: Delivery
    wait: float
    until: float
    size: int


class Holding:
    """Deliveries and until when they are ours, by the monotonic clock. Written by the loop's thread, read by others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def count(self, stream: str, durable: str) -> int:
        """How many of one consumer at the server are held."""
        with self._lock:
            found = [held.delivery for held in self._held.values()]
        return sum(one.stream == stream and one.durable == durable for one in found)

    @property
    def size(self) -> int:
        """Bytes of what is held."""
        with self._lock:
            return sum(held.size for held in self._held.values())

    def take(self, delivery: Delivery, seconds: float, size: int = 0) -> None:
        """It was delivered just now, with a body of ``size`` bytes; the server waits so long for a word."""
        with self._lock:
            self._held[delivery.reply] = _Held(delivery, seconds, self._clock() + seconds, size)

    def holds(self, delivery: Delivery) -> bool:
        """False once the server may have given it to somebody else, and after its release."""
        held = self._held.get(delivery.reply)
        return held is not None and self._clock() < held.until

    def extend(self, deliveries: Iterable[Delivery], since: float) -> None:
        """The server has heard of these, at ``since`` or later."""
        for delivery in deliveries:
            held = self._held.get(delivery.reply)
            if held is not None:
                held.until = since + held.wait

    def release(self, delivery: Delivery) -> None:
        """It is finished, or given back."""
        with self._lock:
            self._held.pop(delivery.reply, None)

    def all(self) -> list[Delivery]:
        """Those that are held now, in the order of their streams; what was lost is forgotten."""
        now = self._clock()
        with self._lock:
            self._held = {reply: held for reply, held in self._held.items() if now < held.until}
            found = [held.delivery for held in self._held.values()]
        return sorted(found, key=lambda one: (one.stream, one.sequence))
