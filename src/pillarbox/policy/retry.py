"""When a failed event is tried again, and when it is given up."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter, and an attempt limit.

    The n-th failure waits a random time between 0 and ``min(cap, base * 2 ** (n - 1))`` seconds: 1, 2, 4, … 60, 60.
    ``max_unknown`` is another limit for an event that was sent and not answered by a healthy destination (None: the
    same). Full jitter spreads retries best (M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015).

    >>> RetryPolicy(jitter=False).delay(4, chance=0.0)
    8.0
    """

    base: float = 1.0
    cap: float = 60.0
    max_attempts: int = 10
    jitter: bool = True
    max_unknown: int | None = None

    def __post_init__(self) -> None:
        if (
            not (0 < self.base <= self.cap)
            or self.max_attempts < 1
            or (self.max_unknown is not None and self.max_unknown < 1)
        ):
            raise ConfigError(f"Retry needs 0 < base <= cap and limits of at least 1, got {self}.")

    def delay(self, attempts: int, chance: float) -> float:
        """Seconds to wait after ``attempts`` failures (from 1); ``chance`` is a random number in [0, 1)."""
        ceiling = min(self.cap, self.base * 2.0 ** min(attempts - 1, 60))
        return ceiling * chance if self.jitter else ceiling

    def exhausted(self, attempts: int, *, unknown: bool = False) -> bool:
        """True when ``attempts`` failures are all that is allowed; ``unknown``: the last one had no answer."""
        limit = self.max_attempts if not unknown or self.max_unknown is None else self.max_unknown
        return attempts >= limit
