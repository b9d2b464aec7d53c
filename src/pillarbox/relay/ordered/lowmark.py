"""From where a partition has to be read: below its low mark, nothing can become ready any more.

Without it every read would walk over the index entries of all that was sent since the last vacuum or purge, which a
transaction that stays open for long keeps from happening. It may rise to a mark only when every transaction that could
still commit a row at or below the mark has ended, *and* a read that began after that has left nothing there:

1. *mark*: how far each partition was settled;
2. *watch*, a moment later (MySQL's list of transactions is up to 0.1 s old): who is writing events now;
3. *passed*, once all of those have ended: the next read still starts at the old low mark, and takes it to the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

SETTLE_SECONDS: Final = 0.25
LATE_COMMIT_SECONDS: Final = 900.0
"""Where the database does not tell who is writing: a transaction that stays open for longer after its ``add`` is found
by the sweep, and may then come after later events of its key."""

Writers = Callable[[], frozenset[str] | None]


class LowMarks:
    """One mark at a time, for all partitions of a relay. Times are seconds of one monotonic clock, passed in."""

    def __init__(self, writers: Writers, late_commit_seconds: float = LATE_COMMIT_SECONDS) -> None:
        self._writers = writers
        self._late = late_commit_seconds
        self._marks: Mapping[int, int] = {}
        self._marked_at = 0.0
        self._watched: frozenset[str] | None = None

    @property
    def waiting(self) -> bool:
        """True while a mark is on its way up."""
        return bool(self._marks)

    def mark(self, settled_to: Mapping[int, int], now: float) -> None:
        """Begin with these marks, by partition; ignored while others are on their way."""
        if not self._marks and settled_to:
            self._marks, self._marked_at, self._watched = dict(settled_to), now, None

    def passed(self, now: float) -> Mapping[int, int]:
        """The marks, once: when nothing can be committed at or below them any more. Asks the database at most once."""
        if not self._marks or now - self._marked_at < SETTLE_SECONDS:
            return {}
        if now - self._marked_at < self._late and not self._have_ended():
            return {}
        marks, self._marks = self._marks, {}
        return marks

    def _have_ended(self) -> bool:
        writing = self._writers()
        if writing is None:  # not to be known, or not just now: asked again, and at last it goes by age
            return False
        self._watched = writing if self._watched is None else self._watched & writing
        return not self._watched
