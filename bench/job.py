"""What one process of a benchmark is told, and what it answers: two values that travel as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Side = Literal["product", "raw"]
SIDES: tuple[Side, Side] = ("product", "raw")
Ownership = Literal["partition", "row"]
OWNERSHIPS: tuple[Ownership, Ownership] = ("partition", "row")


@dataclass(frozen=True, slots=True)
class Job:
    """Drain the outbox at ``database`` to ``broker``; both are URLs, the broker's may be ``null:``.

    ``one_at_a_time``: the raw loop awaits each message before it sends the next one.
    """

    side: Side
    ownership: Ownership
    database: str
    broker: str
    destination: str
    batch: int
    profile: bool = False
    one_at_a_time: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """From the start of the first read to the end of the last settlement, in seconds; ``cpu`` is this process's own.

    Parts that overlap may add up to more than ``wall``. ``work`` is what the database counted meanwhile, per event.
    """

    events: int
    wall: float
    cpu: float
    take: float
    publish: float
    settle: float
    profile: str = ""
    rss_mib: float = 0.0
    work: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.wall
