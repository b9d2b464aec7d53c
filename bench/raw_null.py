"""No broker at all: what the databases' part costs."""

from __future__ import annotations

from collections.abc import Sequence

from bench.raw_loop import Position, Row


class RawNull:
    """Confirms at once."""

    def __init__(self) -> None:
        self._rows: Sequence[Row] = ()

    def start(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def finish(self) -> Sequence[Position]:
        return [(0, row[1]) for row in self._rows]

    def close(self) -> None:
        """Nothing to end."""
