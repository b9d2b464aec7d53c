"""Where dead letters of a consumer go, and what they carry besides the original message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from ..event.codec import as_utc_text

REASON: Final = "deadLetterReason"
ATTEMPTS: Final = "deadLetterAttempts"
CONSUMER: Final = "deadLetterConsumer"
SOURCE: Final = "deadLetterSource"
POSITION: Final = "deadLetterPosition"
AT: Final = "deadLetterAt"
LEFT_OUT: Final = "deadLetterLeftOut"
"""Names of original headers for which there was no room beside the others."""


REPLAYED: Final = "deadLetterReplayed"
"""In a topic of dead letters: this record says that the letter at that position went back to its consumer."""
REPLAYED_BY: Final = "deadLetterReplayedBy"
REPLAYED_AT: Final = "deadLetterReplayedAt"
REPLAY_REASON: Final = "deadLetterReplayReason"

ADDED: Final = frozenset({REASON, ATTEMPTS, CONSUMER, SOURCE, POSITION, AT, LEFT_OUT})


def dead_name(source: str, consumer: str) -> str:
    """The topic or queue that takes what ``consumer`` gave up on ``source``."""
    return f"{source}.{consumer}.dead"


def dead_headers(
    *, source: str, consumer: str, position: str, reason: str, attempts: int, at: datetime
) -> list[tuple[str, str]]:
    """Headers to add to the original ones. ``position`` is where the original stood, in the broker's own terms."""
    return [
        (REASON, reason),
        (ATTEMPTS, str(attempts)),
        (CONSUMER, consumer),
        (SOURCE, source),
        (POSITION, position),
        (AT, as_utc_text(at)),
    ]


def without_dead_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that the message had before it was given up."""
    return {name: value for name, value in headers.items() if name not in ADDED}
