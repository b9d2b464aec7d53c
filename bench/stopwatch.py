"""Where the time of a drain goes: three parts, and the span from the first claim to the last settle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from bench.job import Figures

Part = Literal["claim", "publish", "settle"]


class _Moment(NamedTuple):
    wall: float
    cpu: float
    parts: dict[Part, float]


class Stopwatch:
    """Adds up the parts. Costs two readings of the clock per part and batch, on both sides alike."""

    def __init__(self) -> None:
        self.events = 0
        self._parts: dict[Part, float] = {"claim": 0.0, "publish": 0.0, "settle": 0.0}
        self._began: _Moment | None = None
        self._ended: _Moment | None = None

    @contextmanager
    def measure(self, part: Part) -> Iterator[None]:
        """Add the length of the block to ``part``."""
        start = time.perf_counter()
        if self._began is None:
            self._began = _Moment(start, time.process_time(), {})
        yield
        end = time.perf_counter()
        self._parts[part] += end - start
        if part == "settle":
            # The empty claim by which a loop learns that it is done comes after this, and is not counted.
            self._ended = _Moment(end, time.process_time(), dict(self._parts))

    def figures(self, profile: str = "") -> Figures:
        """What was measured so far; nothing settled is an error."""
        if self._began is None or self._ended is None:
            raise RuntimeError("nothing was drained")
        wall, cpu = self._ended.wall - self._began.wall, self._ended.cpu - self._began.cpu
        return Figures(events=self.events, wall=wall, cpu=cpu, **self._ended.parts, profile=profile)
