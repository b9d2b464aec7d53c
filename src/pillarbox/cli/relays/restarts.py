"""When something that died is started again: at growing distances, and not for ever where a human has to look."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Restarts:
    """Counts deaths in a row. Whoever lived for ``settled`` seconds begins anew. ``limit`` None: never give up.

    >>> restarts = Restarts(limit=2)
    >>> restarts.after(0.1), restarts.after(0.1), restarts.after(0.1)
    (1.0, 2.0, None)
    """

    first: float = 1.0
    longest: float = 30.0
    settled: float = 60.0
    limit: int | None = None
    total: int = 0
    _in_a_row: int = 0

    def after(self, lived: float) -> float | None:
        """Seconds to wait before the next start, after a life of ``lived`` seconds; None: give up."""
        self._in_a_row = 1 if lived >= self.settled else self._in_a_row + 1
        if self.limit is not None and self._in_a_row > self.limit:
            return None
        self.total += 1
        return float(min(self.longest, self.first * 2 ** min(self._in_a_row - 1, 20)))
