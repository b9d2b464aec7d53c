"""What tools and metrics read of an outbox."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple


class Overview(NamedTuple):
    """Counts by state and the age of the oldest event that is not confirmed, in seconds by the database's clock."""

    counts: dict[str, int]
    oldest_age: float | None


class Backlog(NamedTuple):
    """What waits in one outbox, for metrics: deliveries by state, holds by mode, living relays, unowned partitions.

    ``oldest_age``: seconds since the oldest delivery that is neither sent nor given up was recorded; None: none waits.
    """

    states: Mapping[str, int]
    holds: Mapping[str, int]
    oldest_age: float | None
    relays: int
    unowned: int


class DeadLetter(NamedTuple):
    """An event that was given up. ``state`` is DEAD, or BURIED when a person gave it up for good."""

    event_id: str
    event_type: str
    destination: str
    dest: int
    attempts: int
    error: str
    error_at: datetime
    replays: int
    state: str = "DEAD"
