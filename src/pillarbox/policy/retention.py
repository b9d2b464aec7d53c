"""How long what is finished stays, and how gently it is taken away. Pure: no clock, no database."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from ..errors import ConfigError

MAX_BATCH: Final = 10_000
_SMALLEST_BATCH: Final = 10
_REMEMBERED: Final = 31
_ENOUGH: Final = 5
_FIXED: Final = 50  # a batch costs something before its first event; counted as so many events
_BUSY: Final = 3.0
_NOISE: Final = 0.03
_FIRST_BACK_OFF: Final = 0.25
_LONGEST_BACK_OFF: Final = 30.0


@dataclass(frozen=True, slots=True)
class Keep:
    """Seconds for which events stay after their end. ``dead`` None: dead and buried events stay for ever.

    >>> Keep(sent=7 * 86_400).dead is None
    True
    """

    sent: float = 7 * 86_400.0
    dead: float | None = None

    def __post_init__(self) -> None:
        if self.sent < 0 or (self.dead is not None and self.dead < 0):
            raise ConfigError(f"Keep times are 0 or more seconds, got {self}.")


class Pace:
    """How large the next batch may be, and how long to rest after one: told each batch's size and duration.

    Three rules, of which the longest rest counts:

    * **rate**: at most ``rate`` events a second, 0 for no limit;
    * **share**: a batch is followed by a rest in proportion, so that removing takes at most ``share`` of one
      connection's time (0.5: it rests as long as it worked);
    * **busy**: a batch that took more than 3 times the median of the last 31, each event counted and 50 more for what a
      batch costs anyhow, means that the database has other things to do. The rest doubles from 0.25 s up to 30 s and
      the batch halves; each calm batch takes one step back. A lock conflict counts as busy. What stays slow for long
      moves the median, and is the new normal: otherwise nothing would ever be removed on a database that got slower.

    >>> pace = Pace(batch=100, rate=1_000)
    >>> pace.after(100, seconds=0.02)
    0.08
    """

    def __init__(self, *, batch: int = 500, rate: float = 0.0, share: float = 0.5) -> None:
        if not 1 <= batch <= MAX_BATCH or rate < 0 or not 0 < share <= 1:
            raise ConfigError(f"A batch has 1 to {MAX_BATCH} events, a rate is 0 or more, a share above 0 and up to 1.")
        self._largest = batch
        self._rate = rate
        self._share = share
        self._costs: deque[float] = deque(maxlen=_REMEMBERED)
        self._back_off = 0.0
        self.batch = batch
        """Events that the next batch may take."""

    @property
    def backing_off(self) -> bool:
        """Whether the database looks busy."""
        return self._back_off > 0

    def after(self, events: int, seconds: float) -> float:
        """Seconds to rest after a batch that removed ``events`` in ``seconds``."""
        cost = seconds / (events + _FIXED)
        busy = len(self._costs) >= _ENOUGH and seconds > _NOISE and cost > _BUSY * median(self._costs)
        self._costs.append(cost)
        self._slower() if busy else self._faster()
        by_rate = events / self._rate - seconds if self._rate else 0.0
        by_share = seconds * (1 / self._share - 1)
        return max(by_rate, by_share, self._back_off)

    def after_conflict(self) -> float:
        """Seconds to rest after a lock time-out or a deadlock: somebody else was in the way, and was right to be."""
        self._slower()
        return self._back_off

    def _slower(self) -> None:
        self._back_off = min(_LONGEST_BACK_OFF, max(_FIRST_BACK_OFF, self._back_off * 2))
        self.batch = max(min(_SMALLEST_BATCH, self._largest), self.batch // 2)

    def _faster(self) -> None:
        self._back_off = self._back_off / 2 if self._back_off > _FIRST_BACK_OFF else 0.0
        self.batch = min(self._largest, self.batch * 2)


def stretches(ids: Sequence[int], gap: int = 16) -> list[tuple[int, int]]:
    """Ascending ids as ranges (first, last), joined where less than ``gap`` lies between: few ranges, few strangers.

    >>> stretches([1, 2, 5, 100])
    [(1, 5), (100, 100)]
    """
    found: list[tuple[int, int]] = []
    for number in ids:
        if found and number - found[-1][1] < gap:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def within_bytes(sizes: Sequence[int], limit: int) -> int:
    """How many from the front together stay within ``limit`` bytes; the first one always does."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > limit and count:
            return count
    return len(sizes)
