"""A consumer's own retry topics and queues: their names, and what a message carries while it waits there.

What comes from there is stripped of these headers again: a handler sees the message as it was at first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

from ..event.codec import as_utc_text

ATTEMPTS: Final = "retryAttempts"
DUE: Final = "retryDue"
REASON: Final = "retryReason"
POSITION: Final = "retryPosition"
"""Where the original stood, for a dead letter that may follow."""

HEADERS: Final = frozenset({ATTEMPTS, DUE, REASON, POSITION})


class Waited(NamedTuple):
    """What the retry headers say. ``due`` is seconds since 1970 by the clock of whoever put it there."""

    attempts: int
    due: float
    position: str


def retry_name(source: str, consumer: str) -> str:
    """The topic or queue from which ``consumer``, and nobody else, gets messages of ``source`` again."""
    return f"{source}.{consumer}.retry"


def retry_headers(*, seconds: float, now: datetime, position: str, reason: str, attempts: int) -> list[tuple[str, str]]:
    """Headers to add to the original ones of a message that comes again ``seconds`` after ``now``."""
    due = datetime.fromtimestamp(now.timestamp() + max(0.0, seconds), UTC)
    return [(ATTEMPTS, str(attempts)), (DUE, as_utc_text(due)), (REASON, reason), (POSITION, position)]


def read_retry_headers(headers: Mapping[str, str]) -> Waited:
    """Read them back. What is missing or no number (somebody else wrote to the topic) counts as 0: it goes at once.

    >>> read_retry_headers({"retryAttempts": "2", "retryDue": "1970-01-01T00:00:10Z"})
    Waited(attempts=2, due=10.0, position='')
    """
    attempts, due = headers.get(ATTEMPTS, ""), 0.0
    with suppress(ValueError, OverflowError):
        due = datetime.fromisoformat(headers.get(DUE, "")).timestamp()
    known = attempts.isascii() and attempts.isdecimal() and len(attempts) < 10
    return Waited(int(attempts) if known else 0, due, headers.get(POSITION, ""))


def without_retry_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that the message had before it was put back."""
    return {name: value for name, value in headers.items() if name not in HEADERS}
