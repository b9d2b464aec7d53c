"""The circuit breaker of one broker: an outage is met by waiting and one probe per interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(slots=True)
class Breaker:
    """Closed: work flows. Open: nothing is claimed for ``interval`` seconds, then one probe is let through.

    Times are seconds of one monotonic clock, passed in.
    """

    interval: float = 1.0
    _opened_at: float | None = None
    _away_since: float | None = None

    @property
    def is_open(self) -> bool:
        """True from the first sign of an outage until a probe succeeds."""
        return self._opened_at is not None

    def permit(self, now: float) -> Literal["full", "probe", "wait"]:
        """What may be claimed now: a full batch, one event as a probe, or nothing."""
        if self._opened_at is None:
            return "full"
        return "probe" if now - self._opened_at >= self.interval else "wait"

    def wait_for(self, now: float) -> float:
        """Seconds until the next probe is due; 0 when something may be claimed."""
        return 0.0 if self._opened_at is None else max(0.0, self._opened_at + self.interval - now)

    def away_for(self, now: float) -> float:
        """Seconds since the first sign of this outage; 0 when there is none."""
        return 0.0 if self._away_since is None else now - self._away_since

    def trouble(self, now: float) -> bool:
        """The destination is out of reach. Returns True when this opened the breaker."""
        opened = self._opened_at is None
        self._opened_at = now
        if opened:
            self._away_since = now
        return opened

    def success(self) -> bool:
        """The broker answered. Returns True when this closed the breaker."""
        closed = self._opened_at is not None
        self._opened_at = self._away_since = None
        return closed
