"""Destinations in trouble while their broker answers: a topic without leader, or with too few replicas in sync.

Their events would stand in front of all others at every claim. They are parked, uncharged, for about as long as the
trouble has lasted, so that the longer it goes on, the more of them are out of the way, and the rarer each is tried.
"""

from __future__ import annotations

from typing import Final

SHORTEST: Final = 1.0
LONGEST: Final = 15.0
"""Seconds of a pause; the longest is also how late the last event goes out once the destination is well again."""


class Away:
    """Since when each destination has been in trouble, in seconds of one monotonic clock that is passed in."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._since)

    def pause(self, destination: str, now: float, chance: float) -> float:
        """Seconds for which an event waits; ``chance`` in [0, 1) spreads them over the upper half."""
        lasted = now - self._since.get(destination, now)
        return min(max(lasted, SHORTEST), LONGEST) * (0.5 + chance / 2)

    def trouble(self, destination: str, now: float) -> bool:
        """Note trouble. Returns True when it is new."""
        new = destination not in self._since
        self._since.setdefault(destination, now)
        return new

    def answered(self, destination: str) -> bool:
        """It took or refused an event. Returns True when this ended its trouble."""
        return self._since.pop(destination, None) is not None
