"""Event ids: UUID version 7, ordered within a process (RFC 9562, section 5.7 and method 1 of 6.2)."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

_COUNTER_BITS = 74  # rand_a (12 bits) and rand_b (62 bits) together hold a counter that starts at random


class EventIds:
    """Makes time-ordered ids; each is greater than the one before, whatever the clock does.

    Safe between threads. A forked child re-seeds itself, so parent and child never share a counter.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = -1
        self._milliseconds = 0
        self._counter = 0

    def new(self) -> UUID:
        """Return the next id."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            if os.getpid() != self._pid:
                self._pid = os.getpid()
                self._milliseconds = 0
            if now > self._milliseconds:
                self._milliseconds = now
                # The top counter bit starts at 0, which leaves 2**73 steps before the next millisecond is borrowed.
                self._counter = int.from_bytes(os.urandom(10), "big") >> (80 - _COUNTER_BITS + 1)
            else:
                self._counter += 1 + os.urandom(1)[0]
                if self._counter >> _COUNTER_BITS:
                    self._milliseconds += 1
                    self._counter = int.from_bytes(os.urandom(10), "big") >> (80 - _COUNTER_BITS + 1)
            high, low = self._counter >> 62, self._counter & ((1 << 62) - 1)
            return UUID(int=(self._milliseconds << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low)
