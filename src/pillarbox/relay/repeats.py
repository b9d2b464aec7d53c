"""What would be logged once per event, said once a minute."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

SECONDS: Final = 60.0
MOST: Final = 1_000
"""Different things remembered; beyond that some are said twice in a minute."""


class Repeats:
    """Remembers what was said when. One thread's own.

    >>> repeats = Repeats()
    >>> [repeats.due("no exchange", now) for now in (0.0, 1.0, 2.0, 61.0)]
    [0, None, None, 2]
    """

    def __init__(self) -> None:
        self._said: dict[Hashable, tuple[float, int]] = {}

    def due(self, what: Hashable, now: float) -> int | None:
        """Whether to say ``what`` now, and how often that was kept back since it was said last; None: not now."""
        known = self._said.get(what)
        if known is not None and now - known[0] < SECONDS:
            self._said[what] = (known[0], known[1] + 1)
            return None
        if known is None and len(self._said) >= MOST:
            self._said = {one: said for one, said in self._said.items() if now - said[0] < SECONDS}
            if len(self._said) >= MOST:
                self._said.clear()
        self._said[what] = (now, 0)
        return known[1] if known is not None else 0
