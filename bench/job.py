"""What one process of a benchmark is told, and what it answers: two values that travel as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["product", "raw"]
SIDES: tuple[Side, Side] = ("product", "raw")


@dataclass(frozen=True, slots=True)
class Job:
    """Drain the outbox at ``database`` to ``broker``; both are URLs, the broker's may be ``null:``."""

    side: Side
    database: str
    broker: str
    destination: str
    batch: int
    profile: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """From the start of the first claim to the end of the last settle, in seconds; ``cpu`` is this process's own."""

    events: int
    wall: float
    cpu: float
    claim: float
    publish: float
    settle: float
    profile: str = ""

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.wall

    @property
    def rest(self) -> float:
        """What is neither claim nor publish nor settle: planning, bookkeeping, looking for due events."""
        return self.wall - self.claim - self.publish - self.settle
