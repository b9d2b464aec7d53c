"""What a user chose for a consumer, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from ..errors import BadConsumer
from ..policy.retry import RetryPolicy
from .plan import DEFAULT_RETRY
from .verdicts import NO_CLASSES, Policy, RetryIn, Verdict, check_policy, checked_classes


@dataclass(frozen=True, slots=True)
class Choices:
    """See :class:`~.consumer.Consumer`. Raises BadConsumer (PB-041)."""

    retry: RetryPolicy = DEFAULT_RETRY
    drain: float = 10.0
    workers: int = 1
    batch: int = 1
    ahead: int = 100
    ahead_bytes: int = 64 * 1024 * 1024
    on_error: Mapping[type[Exception], Verdict] = field(default_factory=lambda: NO_CLASSES)
    foreign: Policy = "set aside"
    unknown: Policy = "skip"
    newer: Policy = "set aside"
    handler_timeout: float | None = None
    retry_in: RetryIn = "place"

    def __post_init__(self) -> None:
        if self.drain <= 0:
            raise BadConsumer(f"drain must be > 0 seconds, got {self.drain}.", fix="Correct it.")
        if self.handler_timeout is not None and self.handler_timeout <= 0:
            raise BadConsumer(f"handler_timeout must be > 0 seconds, got {self.handler_timeout}.", fix="Correct it.")
        for name in ("workers", "batch", "ahead", "ahead_bytes"):
            if getattr(self, name) < 1:
                raise BadConsumer(f"{name} must be at least 1, got {getattr(self, name)}.", fix="Correct it.")

        object.__setattr__(self, "on_error", checked_classes(self.on_error))
        if self.retry_in not in get_args(RetryIn):
            raise BadConsumer(f"retry_in is {self.retry_in!r}.", fix="Say 'place' or 'broker'.")
        check_policy("foreign", self.foreign)
        check_policy("unknown", self.unknown)
        check_policy("newer", self.newer)

    @property
    def in_hand(self) -> int:
        """The most messages fetched and not finished: at least what all workers need, and as much again."""
        return max(self.ahead, 2 * self.workers * self.batch)
