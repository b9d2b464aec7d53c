"""Taking away what is finished: sent events after a time, dead ones after another if asked for; gently, and resumable.

Nothing is kept about the progress: what is old stands at the front of the key, and a run goes along it once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine

from .. import faultpoints
from ..clock import Clock, SystemClock
from ..errors import ArchiveFailed, DatabaseBusy
from ..policy.retention import Keep, Pace, within_bytes
from ..store.capabilities import detect
from ..store.prune.alone import Turn, turn
from ..store.prune.archive import ArchivedDelivery, ArchivedEvent, archived_events, copy_to_archive, create_archive
from ..store.prune.bounds import Bounds, bounds
from ..store.prune.dead import ended_after, removable_ended, remove_parked
from ..store.prune.events import Event
from ..store.prune.removal import remove_events, remove_receipts, small_row_image
from ..store.prune.sent import Receipts, receipts_after, removable
from ..store.prune.words import Words, words_of
from ..store.prune.work import ENDED
from ..store.transactions import Transactions

__all__ = ["TO_TABLE", "ArchivedDelivery", "ArchivedEvent", "Pruner", "Rules", "Step"]

log = logging.getLogger("pillarbox.prune")

TO_TABLE: Final = "table"
MAX_BYTES: Final = 16 * 1_048_576
"""Payload in one transaction: a delete writes it to undo log and binary log, and replication groups limit both."""

_PAGES: Final = 20
_PAGE: Final = 1_000
_TRIES: Final = 2

HandOver = Callable[[list[ArchivedEvent]], object]


@dataclass(frozen=True, slots=True)
class Rules:
    """What goes, how fast, and what happens to it before.

    ``rate`` is events a second, 0 for no limit; ``batch`` the most in one transaction; ``interval`` seconds between the
    end of a run and the next one. ``archive``: None, ``"table"``, or a function that gets a list of
    :class:`ArchivedEvent` outside of any transaction before they are removed, at least once each; when it raises,
    nothing of that batch is removed. ``minimal_row_image``: see :func:`.small_row_image`.
    """

    keep: Keep = field(default_factory=Keep)
    rate: float = 0.0
    batch: int = 500
    share: float = 0.5
    interval: float = 60.0
    archive: str | HandOver | None = None
    minimal_row_image: bool = False


class Step(NamedTuple):
    """What one step did. ``pause``: seconds until the next one should come.

    ``finished``: the run is over, and the next step begins another. ``elsewhere``: another pruner is at work.
    """

    removed: int
    pause: float
    finished: bool = False
    elsewhere: bool = False


class _Phase(NamedTuple):
    """Where a run is: among the sent events or those in a state of ``ENDED``, behind the id ``after``."""

    state: str
    after: int = 0


class Pruner:
    """Removes finished events, a small batch a step. For one thread; ``engine`` should have a short lock time-out.

    ``step()`` never waits for its turn and never sleeps: the caller does, for ``pause`` seconds. A step is one
    transaction of at most ``batch`` events and some milliseconds; ending between or within steps loses nothing.
    ``alone=False`` leaves out the lock that keeps other pruners away.

        pruner = Pruner(relay_engine(url, pool_size=2, timeouts=Timeouts(lock=1)), Rules(Keep(sent=86_400)))
        while not stopping.wait(pause):
            pause = pruner.step().pause
        pruner.close()

    Raises what :class:`.Transactions` raises, except DatabaseBusy, which only makes it pause; ArchiveFailed (PB-071).
    """

    def __init__(
        self, engine: Engine, rules: Rules, *, alone: bool = True, clock: Clock | None = None, tries: int = _TRIES
    ) -> None:
        self._rules = rules
        self._tables = Transactions(engine, tries=tries)
        self._turn: Turn | None = turn(engine) if alone else None
        self._clock = clock or SystemClock()
        self._pace = Pace(batch=rules.batch, rate=rules.rate, share=rules.share)
        self._words: Words | None = None
        self._bounds: Bounds | None = None
        self._phases: list[_Phase] = []
        self.removed = 0
        """Events removed so far."""

    def step(self) -> Step:
        """Remove one batch; see the class."""
        if self._turn is not None and not self._turn.take():
            self._end()
            return Step(0, self._rules.interval, elsewhere=True)
        try:
            return self._step()
        except DatabaseBusy as error:
            log.info("the database is busy, pausing: %s", error.message)
            return Step(0, self._pace.after_conflict())
        except Exception:
            self._end()
            raise

    def close(self) -> None:
        """Let others prune."""
        self._end()

    def _step(self) -> Step:
        began = self._clock.monotonic()
        found = self._begun()
        phase = self._phases[0]
        removed, after = (self._sent if phase.state == "SENT" else self._ended)(found, phase)
        self.removed += removed
        faultpoints.reach("prune.after-batch")
        if after is None:
            del self._phases[0]
        else:
            self._phases[0] = _Phase(phase.state, after)
        pause = self._pace.after(removed, self._clock.monotonic() - began)
        if self._phases:
            return Step(removed, pause)
        self._end()
        return Step(removed, max(pause, self._rules.interval), finished=True)

    def _begun(self) -> Bounds:
        """The bounds of the run; found anew when it begins."""
        if self._bounds is None:
            if self._words is None:
                self._words = words_of(self._tables.read(detect))
                if self._rules.archive == TO_TABLE:
                    self._tables.write(create_archive)
            self._bounds = self._tables.read(partial(bounds, words=self._words, keep=self._rules.keep))
            self._phases = [_Phase("SENT"), *(_Phase(state) for state in ENDED if self._rules.keep.dead is not None)]
        return self._bounds

    def _end(self) -> None:
        self._bounds = None
        if self._turn is not None:
            self._turn.leave()

    # One batch: find without locks, hand over if wanted, then lock, check again and delete --------------------------

    def _sent(self, bounds: Bounds, phase: _Phase) -> tuple[int, int | None]:
        candidates, after = self._tables.read(partial(self._walk, bounds=bounds, after=phase.after))
        if not candidates:
            return 0, after
        if callable(self._rules.archive):
            seen = self._tables.read(
                partial(removable, words=self._said, candidates=candidates, bounds=bounds, lock=False)
            )
            going, after = _bounded(seen.events, after)
            self._hand_over([one.id for one in going])
            # Only these: what was not removable a moment ago may be now, and nobody has archived it.
            known = {one.id for one in going} | seen.leftovers.keys()
            candidates = [one for one in candidates if one.id in known]
        return self._tables.write(partial(self._remove_sent, candidates=candidates, bounds=bounds, after=after))

    def _walk(self, connection: Connection, bounds: Bounds, after: int) -> tuple[list[Receipts], int | None]:
        """Old receipts for a batch, and the id up to which was looked; None at the end of the run."""
        found: list[Receipts] = []
        for _ in range(_PAGES):
            page = receipts_after(connection, self._said, after, bounds, _PAGE)
            old = [one for one in page if one.old and one.gapless]
            room = self._pace.batch - len(found)
            found += old[:room]
            if len(old) >= room:
                return found, found[-1].id
            if len(page) < _PAGE:
                return found, None
            after = page[-1].id
        return found, after

    def _remove_sent(
        self, connection: Connection, candidates: list[Receipts], bounds: Bounds, after: int | None
    ) -> tuple[int, int | None]:
        seen = removable(connection, self._said, candidates, bounds, lock=True)
        going, after = _bounded(seen.events, after)
        counts = {one.id: one.destinations for one in going}
        counts |= {number: count for number, count in seen.leftovers.items() if after is None or number <= after}
        ids = [one.id for one in going]
        self._copy(connection, ids)
        with self._small_rows(connection):
            removed = remove_events(connection, self._said, ids)
            faultpoints.reach("prune.within")
            remove_receipts(connection, self._said, counts)
        return removed, after

    def _ended(self, bounds: Bounds, phase: _Phase) -> tuple[int, int | None]:
        rows = self._tables.read(
            lambda c: ended_after(c, self._said, phase.state, phase.after, bounds, self._pace.batch)
        )
        after = rows[-1][0] if len(rows) >= self._pace.batch else None
        ids = sorted({number for number, old in rows if old})
        if not ids:
            return 0, after
        if callable(self._rules.archive):
            seen = self._tables.read(partial(removable_ended, words=self._said, ids=ids, bounds=bounds, lock=False))
            going, after = _bounded(seen.events, after)
            ids = [one.id for one in going]
            self._hand_over(ids)
        return self._tables.write(partial(self._remove_ended, ids=ids, bounds=bounds, after=after))

    def _remove_ended(
        self, connection: Connection, ids: list[int], bounds: Bounds, after: int | None
    ) -> tuple[int, int | None]:
        seen = removable_ended(connection, self._said, ids, bounds, lock=True)
        going, after = _bounded(seen.events, after)
        numbers = [one.id for one in going]
        self._copy(connection, numbers)
        gone = set(numbers)
        with self._small_rows(connection):
            remove_parked(connection, self._said, [key for key in seen.parked if key.id in gone])
            removed = remove_events(connection, self._said, numbers)
            remove_receipts(connection, self._said, {n: count for n, count in seen.receipts.items() if n in gone})
        return removed, after

    def _small_rows(self, connection: Connection) -> AbstractContextManager[None]:
        return small_row_image(connection, self._said, wanted=self._rules.minimal_row_image)

    def _copy(self, connection: Connection, ids: list[int]) -> None:
        if self._rules.archive == TO_TABLE and ids:
            copy_to_archive(connection, self._said, ids)

    def _hand_over(self, ids: list[int]) -> None:
        hand_over = self._rules.archive
        if not ids or not callable(hand_over):
            return
        rows = self._tables.read(partial(archived_events, ids=ids))
        try:
            hand_over(rows)
        except Exception as error:
            raise ArchiveFailed(
                f"The archive function failed for {len(rows)} events: {type(error).__name__}: {error}."
            ) from error
        faultpoints.reach("prune.handed-over")

    @property
    def _said(self) -> Words:
        assert self._words is not None
        return self._words


def run(pruner: Pruner, *, once: bool = False, pause: Callable[[float], object] = time.sleep) -> Step:
    """Step until the run is finished, or another pruner is at work; ``once``: a single step. Returns the last step."""
    while True:
        step = pruner.step()
        if once or step.finished or step.elsewhere:
            return step
        pause(step.pause)


def _bounded(events: Sequence[Event], after: int | None) -> tuple[list[Event], int | None]:
    """The events from the front that stay within MAX_BYTES, and where to go on."""
    fit = within_bytes([one.size for one in events], MAX_BYTES)
    if fit == len(events):
        return list(events), after
    return list(events[:fit]), events[fit - 1].id
