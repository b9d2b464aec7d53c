"""The relay's settings, with the rules between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..errors import ConfigError, DeadlineTooLong
from ..policy.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """All times in seconds.

    ``lease``: how long a claim holds without renewal, and so how long a dead relay's events wait at most.
    ``broker_deadline``: how long a publish may wait for its acknowledgements; must be below half the lease, so that a
    slow send cannot outlive its claim. ``batch``: events per claim. ``poll_min``/``poll_max``: pause after an empty
    claim, growing from one to the other. ``due_interval``: how often parked events are looked at.
    ``probe_interval``: how often one event is tried while the broker is out of reach. ``linger``: how long after the
    last event the pause stays at ``poll_min``.

    With a partition lease: ``on_failure`` hold lets later events of a key wait for a failed one, skip goes on without
    it. ``max_bytes``: payload bytes that may be under way. ``late_commit``: see :mod:`.ordered.lowmark`.

    >>> RelaySettings(lease=30, broker_deadline=10).batch
    2000
    """

    lease: float = 60.0
    broker_deadline: float = 20.0
    batch: int = 2000
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    poll_min: float = 0.005
    poll_max: float = 0.56
    due_interval: float = 0.5
    probe_interval: float = 1.0
    linger: float = 1.0
    on_failure: Literal["hold", "skip"] = "hold"
    max_bytes: int = 32 * 1024 * 1024
    late_commit: float = 900.0

    def __post_init__(self) -> None:
        if self.broker_deadline <= 0 or self.broker_deadline >= self.lease / 2:
            raise DeadlineTooLong(
                f"The broker deadline of {self.broker_deadline:g} s does not fit the lease of {self.lease:g} s."
            )
        if not 1 <= self.batch <= 10_000:
            raise ConfigError(f"The batch must be between 1 and 10,000 events, got {self.batch}.")
        if not 0 < self.poll_min <= self.poll_max or self.due_interval <= 0 or self.probe_interval <= 0:
            raise ConfigError(f"Poll, due and probe intervals must be positive and poll_min <= poll_max: {self}.")
        if self.on_failure not in ("hold", "skip") or self.max_bytes < 1 or self.linger < 0 or self.late_commit <= 0:
            raise ConfigError(f"on_failure is hold or skip, and the limits are positive: {self}.")
