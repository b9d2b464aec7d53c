"""Removing marks, and what is done outside, older than anything that the broker can still deliver; gently."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine

from ..clock import Clock, SystemClock
from ..errors import ConfigError, DatabaseBusy
from ..policy.retention import Pace
from ..store.catalog import has_table
from ..store.effects_ops import count_done, remove_done
from ..store.inbox_prune import MAX_BATCH, marks_after, next_consumer, remove
from ..store.schema import inbox_effect
from ..store.transactions import Transactions

log = logging.getLogger("pillarbox.inbox")

DAY: Final = 86_400.0
HORIZON: Final = 7 * DAY
"""Kafka keeps a message for so long by default (``log.retention.hours`` 168), and may deliver it until then."""

_PAGE: Final = 1_000
_PAGES: Final = 20
_TRIES: Final = 2


@dataclass(frozen=True, slots=True)
class InboxRules:
    """Which marks go. ``keep`` and ``horizon`` are seconds, ``consumer`` None means all of them.

    ``horizon`` is how long after its first delivery an event may come again: the broker's retention, plus what waits in
    retry and dead-letter queues. It is the floor: ``keep`` must be longer, else ConfigError (PB-001). An event whose
    mark is gone is applied again if it still comes.

    >>> InboxRules().keep / DAY
    30.0
    """

    keep: float = 30 * DAY
    horizon: float = HORIZON
    consumer: str | None = None
    batch: int = 500
    rate: float = 0.0
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.horizon < self.keep:
            raise ConfigError(
                f"Marks would be kept for {self.keep / DAY:g} days, and the broker may deliver an event again for "
                f"{self.horizon / DAY:g} days.",
                fix="Keep them longer than that; or say that the broker forgets sooner (--horizon), if it does.",
            )
        if self.batch > MAX_BATCH:
            raise ConfigError(f"A batch has at most {MAX_BATCH} marks, got {self.batch}.", fix="Take fewer.")


class InboxStep(NamedTuple):
    """What one step did. ``pause``: seconds until the next one should come. ``finished``: all has been looked at."""

    removed: int
    pause: float
    finished: bool = False


class InboxPruner:
    """Removes old marks, then old effects that are done, a small batch a step, each in a transaction of its own. For
    one thread. With a ``consumer`` in its rules, the marks of that one only.

    ``step()`` never sleeps: the caller does, for ``pause`` seconds. It walks along each consumer's marks once; ending
    anywhere loses nothing, and several pruners at once only do the same work twice.

        pruner = InboxPruner(relay_engine(url, pool_size=1, timeouts=Timeouts(lock=1)), InboxRules(keep=30 * DAY))
        while not (step := pruner.step()).finished:
            stopping.wait(step.pause)

    Raises what :class:`.Transactions` raises, except DatabaseBusy, which only makes it pause.
    """

    def __init__(self, engine: Engine, rules: InboxRules, *, clock: Clock | None = None, dry: bool = False) -> None:
        self._rules = rules
        self._tables = Transactions(engine, tries=_TRIES)
        self._clock = clock or SystemClock()
        self._pace = Pace(batch=rules.batch, rate=0.0 if dry else rules.rate, share=rules.share)
        self._dry = dry
        self._consumer = rules.consumer
        self._after = ""
        self._marks_over = False
        self._over = False
        self.removed: dict[str, int] = {}
        """Marks removed so far (with ``dry``: that would be), by consumer."""
        self.effects_removed = 0
        """The same of effects."""

    def step(self) -> InboxStep:
        """Remove one batch; see the class."""
        try:
            began = self._clock.monotonic()
            removed = self._effects() if self._marks_over else self._batch()
        except DatabaseBusy as error:
            log.info("the database is busy, pausing: %s", error.message)
            return InboxStep(0, self._pace.after_conflict())
        return InboxStep(removed, self._pace.after(removed, self._clock.monotonic() - began), self._over)

    def _batch(self) -> int:
        consumer = self._consumer or self._next("")
        if consumer is None:
            return 0
        old, last = self._tables.read(partial(self._walk, consumer))
        count = len(old)
        if old and not self._dry:
            count = self._tables.write(lambda c: remove(c, consumer, old, self._rules.keep))
        self.removed[consumer] = self.removed.get(consumer, 0) + count
        if last is not None:
            self._after = last
        else:
            self._next(consumer)
        return count

    def _walk(self, consumer: str, connection: Connection) -> tuple[list[str], str | None]:
        """Old marks for a batch, and where to go on; None at this consumer's end."""
        after = self._after
        for _ in range(_PAGES):
            found = marks_after(connection, consumer, after, _PAGE, self._rules.keep)
            if len(found.old) > self._pace.batch:
                batch = found.old[: self._pace.batch]
                return batch, batch[-1]
            if found.old or found.last is None:
                return found.old, found.last
            after = found.last
        return [], after

    def _next(self, consumer: str) -> str | None:
        """Go on with the consumer behind this one."""
        self._after = ""
        self._consumer = None
        if self._rules.consumer is None:
            self._consumer = self._tables.read(lambda c: next_consumer(c, consumer))
        self._marks_over = self._consumer is None
        self._over = self._marks_over and self._rules.consumer is not None
        return self._consumer

    def _effects(self) -> int:
        if self._over or not self._tables.read(lambda c: has_table(c, inbox_effect.name)):  # an inbox of revision 0001
            self._over = True
            return 0
        if self._dry:
            self._over = True
            removed = self._tables.read(lambda c: count_done(c, self._rules.keep))
        else:
            removed = self._tables.write(lambda c: remove_done(c, self._rules.keep, self._pace.batch))
            self._over = removed == 0
        self.effects_removed += removed
        return removed
