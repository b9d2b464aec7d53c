"""What one relay looks like at one moment: a value that crosses threads and processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..policy.health import Health


class Snapshot(NamedTuple):
    """``process``: its number under ``--processes``, else 0. ``outbox``: its name among several, else ``default``."""

    process: int
    outbox: str
    relay: str
    counters: Mapping[str, int]
    health: Health
    restarts: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**self._asdict(), "counters": dict(self.counters), "health": self.health._asdict()}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Snapshot:
        """The other way."""
        health = found["health"]
        return cls(**{**found, "health": Health(**{**health, "problems": tuple(health["problems"])})})


def not_running(process: int, outbox: str, relay: str, why: str, restarts: int, *, live: bool = True) -> Snapshot:
    """A relay that is about to be started again: not ready, but no reason to restart what surrounds it."""
    return Snapshot(process, outbox, relay, {}, Health(live, False, (why,)), restarts)
