"""What follows from an attempt. Pure: chance and counters come in as arguments."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import EffectPending
from ..policy.retry import RetryPolicy
from .verdicts import Verdict

MAX_REASON: Final = 2_000
"""Characters of a dead letter's reason: it travels as a header."""

DEFAULT_RETRY: Final = RetryPolicy(base=1.0, cap=30.0, max_attempts=5)
"""Half a minute at most. While one event waits, the events of its key wait, too: order is kept."""

OUTAGE_RETRY: Final = RetryPolicy(base=0.5, cap=10.0, max_attempts=2**31)
"""Pauses while a database or broker is away; never exhausted, because no event is at fault."""

MAX_BREAKS: Final = 10
"""How often in a row one event's handlers may lose a database that was there just before. After that it is the event:
a statement larger than the server's packet, or longer than its idle time-out, ends the connection each time."""


class Finish(NamedTuple):
    """It is done and will be acknowledged."""


class RetryLater(NamedTuple):
    """Try again in ``seconds``; ``attempts`` have failed so far."""

    seconds: float
    attempts: int


class WaitOut(NamedTuple):
    """The database is away: again in ``seconds``, charged to nobody; ``everybody``: no other event has a chance now."""

    seconds: float
    everybody: bool


class SetAside(NamedTuple):
    """Give the event up: into the dead-letter destination, with this reason."""

    reason: str
    attempts: int


class PutBack(NamedTuple):
    """Through the consumer's own retry topic or queue: it comes again in ``seconds``, and its key does not wait."""

    seconds: float
    reason: str
    attempts: int


class Discard(NamedTuple):
    """Acknowledge it as if it had not been there: its error is of a class that the user wants dropped."""

    reason: str


class Untouched(NamedTuple):
    """Nothing was tried: it stays where it is."""


class Gone(NamedTuple):
    """The broker took it back: it is not acknowledged, and comes again."""


Step = Finish | RetryLater | WaitOut | SetAside | PutBack | Discard | Untouched | Gone


def after_failure(
    error: BaseException,
    attempts: int,
    policy: RetryPolicy,
    chance: float,
    *,
    verdict: Verdict = "retry",
    final: bool = False,
) -> RetryLater | SetAside | Discard:
    """Decide on a failed attempt, the ``attempts``-th (from 1); ``final`` ones must not be repeated.

    An effect that will be known in a while is waited for that long: attempts before it would be used up for nothing.
    """
    if verdict == "drop" and not final:
        return Discard(reason_of(error))
    if final or verdict == "give up" or policy.exhausted(attempts):
        return SetAside(reason_of(error), attempts)
    pause = error.seconds if isinstance(error, EffectPending) else 0.0
    return RetryLater(max(pause, policy.delay(attempts, chance)), attempts)


def reason_of(error: BaseException) -> str:
    """An error as one readable line that fits a header."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    line = " ".join(text.split())
    clean = line.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
    return clean if len(clean) <= MAX_REASON else clean[: MAX_REASON - 1] + "…"
