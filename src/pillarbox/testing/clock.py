"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A :class:`pillarbox.clock.Clock` for tests. Safe between threads.

    >>> clock = FakeClock()
    >>> clock.advance(90)
    >>> clock.now().isoformat(), clock.monotonic()
    ('2026-01-01T00:01:30+00:00', 90.0)
    """

    def __init__(self, now: datetime = _START) -> None:
        if now.utcoffset() is None:
            raise ValueError(f"a clock needs a time with a zone, got {now!r}")
        self._lock = threading.Lock()
        self._now = now.astimezone(UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        """The wall time, aware, in UTC."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made; never goes back."""
        with self._lock:
            return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass, for both."""
        if seconds < 0:
            raise ValueError("time does not go back; set_wall() moves the wall time alone")
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds

    def set_wall(self, now: datetime) -> None:
        """Set the wall time alone, as an administrator or NTP would: it may go back."""
        with self._lock:
            self._now = now.astimezone(UTC)
