"""How far a server's clock is from this process's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

ASKED: Final = 9


def offset(ask: Callable[[], float], *, times: int = ASKED, now: Callable[[], float] = time.time) -> float:
    """The server's clock minus ours, in seconds: of ``times`` answers the one that came back soonest counts.

    Its error is half that answer's round trip at most, plus the resolution of what ``ask`` returns.

    >>> ticks = iter([10.0, 10.2, 20.0, 20.02])
    >>> round(offset(lambda: 25.01, times=2, now=lambda: next(ticks)), 3)
    5.0
    """
    best = (float("inf"), 0.0)
    for _ in range(times):
        before = now()
        theirs = ask()
        after = now()
        best = min(best, (after - before, theirs - (before + after) / 2))
    return best[1]
