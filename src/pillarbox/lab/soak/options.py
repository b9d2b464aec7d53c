"""What a soak is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import ConfigError

MOST_EVENTS = 2_000_000
"""More do not fit into the memory of the accounting, which keeps every event until the end."""


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """All times in seconds. Without ``database`` and ``broker``: SQLite files and an embedded log.

    ``kill_every`` is the mean time from one SIGKILL to the next, over all roles. Frozen processes and broken links come
    beside them, at a pace that follows it. ``disturb`` are commands (words as in a shell, but no shell runs them) that
    are run one after the other at random moments, each with ``disturb_deadline``, ``disturb_times`` in all (None: one
    a minute, and each command once at least). ``rate`` is events per second. ``keys`` is how many aggregates there are;
    ``withdrawn`` the share of transactions that are rolled back on purpose, after their events were written.
    ``drain`` bounds the time from the last fault until everything has been sent and applied. ``kafka_via`` puts proxies
    before Kafka's brokers (``advertised=real`` of each): only so can its links be broken.

    >>> SoakOptions(seconds=600, kill_every=0.5).kills
    1200
    """

    seconds: float = 600.0
    kill_every: float = 2.0
    database: str | None = None
    broker: str | None = None
    ownership: Literal["partition", "row"] = "partition"
    relays: int = 3
    consumers: int = 2
    writers: int = 2
    rate: float = 200.0
    keys: int = 40
    withdrawn: float = 0.08
    seed: int = 7
    disturb: tuple[str, ...] = ()
    disturb_deadline: float = 120.0
    disturb_times: int | None = None
    drain: float = 180.0
    kafka_via: str | None = None
    out: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.seconds <= 24 * 3600 or not 0.1 <= self.kill_every <= 3600:
            raise ConfigError("A soak takes 1 second to 24 hours, and kills every 0.1 to 3600 seconds.")
        if not (1 <= self.relays <= 32 and 1 <= self.consumers <= 32 and 1 <= self.writers <= 32):
            raise ConfigError("A soak takes 1 to 32 processes of each role.")
        if not 1 <= self.keys <= 10_000 or not 0 <= self.withdrawn < 1 or self.rate <= 0:
            raise ConfigError("A soak takes 1 to 10,000 keys, a withdrawn share below 1 and a positive rate.")
        if self.rate * self.seconds > MOST_EVENTS:
            raise ConfigError(
                f"{self.rate:g} events per second for {self.seconds:g} s are more than {MOST_EVENTS:,} events.",
                fix="Lower --rate or --minutes.",
            )
        if self.drain <= 0 or self.disturb_deadline <= 0 or (self.disturb_times or 0) < 0:
            raise ConfigError("Deadlines are positive, and the number of disturbances is not negative.")
        if self.ownership not in ("partition", "row"):
            raise ConfigError(f"Relays own partition or row, got {self.ownership!r}.")

    @property
    def kills(self) -> int:
        """How many kills fit into the time."""
        return max(1, int(self.seconds / self.kill_every))

    @property
    def members(self) -> dict[str, int]:
        """How many processes each role has."""
        return {"relay": self.relays, "consumer": self.consumers, "writer": self.writers}

    @property
    def disturbances(self) -> int:
        """How often one of the commands is run."""
        if not self.disturb:
            return 0
        wanted = max(len(self.disturb), int(self.seconds // 60))
        return wanted if self.disturb_times is None else self.disturb_times

    @property
    def ordered(self) -> bool:
        """True when the order of each key is promised, and judged."""
        return self.ownership == "partition"
