"""Fencing tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Tokens:
    """Microseconds since 1970, but always greater than the one before, whatever the clock does. Safe between threads.

    A token need only be unique for its owner, and grow; no two clocks are ever compared.
    """

    def __init__(self, nanoseconds: Callable[[], int] = time.time_ns) -> None:
        self._nanoseconds = nanoseconds
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        """The next token."""
        with self._lock:
            self._last = max(self._last + 1, self._nanoseconds() // 1_000)
            return self._last
