"""Looks at a backlog on a thread of its own, only when asked, and never so often that the database would feel it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from ..clock import Clock, SystemClock
from ..errors import PillarboxError
from ..ports import Backlog

log = logging.getLogger("pillarbox.observe")

PACE: Final = 5.0
"""Seconds between two looks, at least."""

SHARE: Final = 20
"""A look that took t seconds is not repeated before SHARE * t: at most a twentieth of one connection's time."""


class Seen(NamedTuple):
    """The last look: its figures (None: there was none yet that worked), their age, its length, and the failures."""

    backlog: Backlog | None
    age: float
    took: float
    errors: int


class Lookout:
    """``latest()`` answers at once with what is known, and has a new look taken when that is old.

    Before the first look it waits up to ``patience`` seconds. A failed look leaves the figures, whose age then grows.
    """

    def __init__(
        self, look: Callable[[], Backlog], *, pace: float = PACE, patience: float = 2.0, clock: Clock | None = None
    ) -> None:
        self._look = look
        self._pace = pace
        self._patience = patience
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._busy = False
        self._done = threading.Event()
        self._backlog: Backlog | None = None
        self._looked_at = self._clock.monotonic()
        self._next_at = self._looked_at
        self._took = 0.0
        self._errors = 0

    def latest(self) -> Seen:
        """What is known now. Starts a look when it is time for one; at most one is under way."""
        self._start_if_due()
        if not self._done.is_set():
            self._done.wait(self._patience)
        return Seen(self._backlog, self._clock.monotonic() - self._looked_at, self._took, self._errors)

    def _start_if_due(self) -> None:
        with self._lock:
            if self._busy or self._clock.monotonic() < self._next_at:
                return
            self._busy = True
        threading.Thread(target=self._take, name="pillarbox-lookout", daemon=True).start()

    def _take(self) -> None:
        began = self._clock.monotonic()
        try:
            found = self._look()
        except PillarboxError as error:
            self._errors += 1
            log.warning("the backlog cannot be looked at: %s", error)
        else:
            self._backlog, self._looked_at = found, self._clock.monotonic()
        finally:
            self._took = self._clock.monotonic() - began
            self._next_at = began + max(self._pace, SHARE * self._took)
            self._done.set()
            with self._lock:
                self._busy = False
