"""Where the time of a drain goes: three parts, and the span from the first read to the last settlement."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from bench.job import Figures

Part = Literal["take", "publish", "settle"]


class _Moment(NamedTuple):
    wall: float
    cpu: float
    parts: dict[Part, float]


class Stopwatch:
    """Adds up the parts, from any thread. Costs two readings of the clock per part and batch, on both sides alike."""

    def __init__(self) -> None:
        self.events = 0
        self._lock = threading.Lock()
        self._parts: dict[Part, float] = {"take": 0.0, "publish": 0.0, "settle": 0.0}
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
        with self._lock:
            self._parts[part] += end - start
            self.added(part, end - start)
            if part == "settle":
                # The empty read by which a loop learns that it is done comes after this, and is not counted.
                self._ended = _Moment(end, time.process_time(), dict(self._parts))

    def added(self, part: str, seconds: float) -> None:
        """For those who want to know each."""

    def count(self, events: int) -> None:
        """So many events were settled."""
        with self._lock:
            self.events += events

    def figures(self, profile: str = "") -> Figures:
        """What was measured so far; nothing settled is an error."""
        if self._began is None or self._ended is None:
            raise RuntimeError("nothing was drained")
        wall, cpu = self._ended.wall - self._began.wall, self._ended.cpu - self._began.cpu
        parts = self._ended.parts
        return Figures(self.events, wall, cpu, parts["take"], parts["publish"], parts["settle"], profile)
