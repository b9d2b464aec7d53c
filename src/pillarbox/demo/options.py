"""What a run of the demo is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigError

Way = Literal["inside", "after", "outbox"]
WAYS: dict[str, tuple[Way, ...]] = {
    "all": ("inside", "after", "outbox"),
    "naive": ("inside", "after"),
    "outbox": ("outbox",),
}


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """``only`` picks the ways that run. Without ``database`` and ``broker``: SQLite files and an embedded log.

    ``failing`` is the share of orders that fail after their event was written or sent; ``kills`` how often each process
    (shop, relay, stock) is killed with SIGKILL. ``seed`` decides which orders fail and where the kills strike.
    """

    only: Literal["all", "naive", "outbox"] = "all"
    database: str | None = None
    broker: str | None = None
    orders: int = 1000
    failing: float = 0.15
    kills: int = 3
    seed: int = 7
    json: bool = False

    def __post_init__(self) -> None:
        if self.only not in WAYS:
            raise ConfigError(f"--only takes all, naive or outbox, got {self.only!r}.")
        if not 1 <= self.orders <= 100_000 or not 0 <= self.failing < 1 or not 0 <= self.kills <= 20:
            raise ConfigError("The demo takes 1 to 100,000 orders, a failing share below 1 and at most 20 kills.")

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways to run, in order."""
        return WAYS[self.only]
