"""What a relay does besides its rounds, each at its own pace: its share of the partitions, what has come due, what
operators released, the low marks, and a sweep for what should not be there."""

from __future__ import annotations

import logging
from typing import Final

from ...errors import DatabaseUnavailable, RelayIdTaken
from ...ports import Fleet, OrderedStore, Span, Tenure
from ..settings import RelaySettings
from ..stats import RelayStats
from .estate import Estate, Owned
from .keeper import Keeper
from .lowmark import LowMarks
from .namesake import Namesake
from .shares import next_look, quota, share

log = logging.getLogger("pillarbox.relay")

LOOK_SECONDS: Final = 1.0  # between looks at the fleet while at work
MARK_SECONDS: Final = 1.0
IDLE_MARK_SECONDS: Final = 15.0  # a transaction may stay open for hours, and costs an idle relay next to nothing
SWEEP_SECONDS: Final = 60.0


class Duties:
    """Every method takes the monotonic time. All may raise DatabaseUnavailable, and are then simply due again."""

    def __init__(
        self, store: OrderedStore, estate: Estate, keeper: Keeper, settings: RelaySettings, stats: RelayStats
    ) -> None:
        self._store = store
        self._estate = estate
        self._keeper = keeper
        self._settings = settings
        self._stats = stats
        self._marks = LowMarks(store.writers, settings.late_commit)
        self._next = dict.fromkeys(("look", "idle look", "due", "holds", "marks", "sweep"), 0.0)
        self._relays_seen = 1
        self._namesake = Namesake(store.relay_id, settings.lease)
        self._told_of_namesake = False
        self.entitled = 0

    def at_work(self, now: float) -> None:
        """While there is work: each duty when its time has come."""
        if now >= self._next["look"]:
            self.look(now)
        if now >= self._next["due"]:
            self._move_due(now)
        if now >= self._next["holds"]:
            self._next["holds"] = now + self._settings.due_interval
            if any(one.holds for one in self._estate):
                self._read_holds(now)
        if now >= self._next["marks"]:
            self._next["marks"] = now + MARK_SECONDS
            self._move_marks(now)
        if now >= self._next["sweep"]:
            self._sweep(now)

    def when_idle(self, now: float) -> bool:
        """Idle: one cheap statement tells whether there is anything to do. Returns False when there is nothing."""
        if now >= self._next["sweep"]:
            self._sweep(now)
        if self._marks.waiting and now >= self._next["marks"]:
            self._next["marks"] = now + IDLE_MARK_SECONDS
            self._move_marks(now)
        signs = self._store.signs(self.spans())
        if signs.relays != self._relays_seen or now >= self._next["idle look"]:
            self.look(now)
        if signs.due:
            self._move_due(now)
        if signs.drain:
            self._read_holds(now)
        return signs.ready or signs.due or self.anything_due(now)

    def is_done(self, now: float) -> bool:
        """True when nothing that is owned can go now; of a relay that owns nothing, when nothing at all can."""
        if self._estate:
            return not self._store.signs(self.spans()).ready and not self.anything_due(now)
        everything = self._store.signs([Span(one.partition_no, 0) for one in self._store.fleet().partitions])
        return not (everything.ready or everything.due or everything.drain)

    def anything_due(self, now: float) -> bool:
        """True when a hold is due for another try, or drains."""
        return any(one.is_free and one.holds and one.holds.due(now, 1) for one in self._estate)

    def spans(self) -> list[Span]:
        """Every partition, from its low mark on."""
        return [Span(one.number, one.low_id) for one in self._estate]

    # The share of the partitions ----------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Compare what is owned with the fair share: give up what is too much, take what is free."""
        fleet = self._store.fleet()
        me = self._store.relay_id
        self._relays_seen = max(1, len(fleet.relays))
        self.entitled = quota(fleet.relays, me, len(fleet.partitions))
        self._heed_namesake(fleet, now)
        staying = [one for one in self._estate if not one.leaving]
        mine = {one.number for one in staying}
        todo = share(fleet, me, mine)
        # A dead relay's leases do not all end at once: each partition has its own, renewed when it was settled last.
        owned_soon = mine.union(todo.take)
        self._next["look"] = now + next_look(fleet, owned_soon, LOOK_SECONDS)
        # Idle, new relays show in the signs: with its share complete, a relay waits for the first lease that could end.
        complete = len(owned_soon) == self.entitled and not todo.take
        self._next["idle look"] = now + next_look(fleet, owned_soon, SWEEP_SECONDS if complete else LOOK_SECONDS)
        for one in sorted(staying, key=lambda one: (one.busy, -one.number))[: todo.give]:
            one.leaving = True
        self.release_leaving()
        if todo.take:
            self._acquire(todo.take, now)

    def _heed_namesake(self, fleet: Fleet, now: float) -> None:
        """A predecessor that died is waited for, and said so once; RelayIdTaken (PB-034) when it turns out to live."""
        finding = self._namesake.look(fleet, self._estate.by_number.keys(), now)
        numbers = ", ".join(map(str, self._namesake.partitions))
        if finding == "lives":
            raise RelayIdTaken(f"Another relay named {self._store.relay_id!r} lives: it owns partitions {numbers}.")
        if finding == "waiting" and not self._told_of_namesake:
            log.warning(
                "partitions %s are owned under this relay's own name %r: by one that died and is replaced when its"
                " lease ends, or by another that lives, which must not be; give each its own relay.id",
                numbers,
                self._store.relay_id,
            )
        self._told_of_namesake = finding == "waiting"

    def _acquire(self, numbers: list[int], now: float) -> None:
        taken = self._store.acquire(numbers)
        if taken:
            log.info("takes partitions %s", ", ".join(str(one.tenure.partition_no) for one in taken))
        for partition in taken:
            owned = self._estate.add(partition, now)
            self._stats.acquired += 1
            if owned.is_careful:
                self._stats.crashes_seen += 1
                log.warning(
                    "partition %d: an owner died with events up to row %d perhaps on their way, %d in a row",
                    owned.number,
                    owned.careful_to,
                    owned.crashes,
                )
        self._owned_changed()

    def release_leaving(self) -> None:
        """Give up what is too much, once nothing of it is under way."""
        gone = [one for one in self._estate if one.leaving and not one.busy]
        if gone:
            self._store.release([one.progress(handed_to=0) for one in gone])
            log.info("hands over partitions %s", ", ".join(str(one.number) for one in gone))
            for one in gone:
                self._estate.lose(one.tenure)
            self._stats.released += len(gone)
            self._owned_changed()

    def release_all(self) -> None:
        """Before leaving: others take over at once. What is still under way may be sent twice."""
        rest = list(self._estate)
        self._store.release([one.progress(handed_to=None if one.busy else 0) for one in rest])
        self._stats.released += len(rest)

    def forget_lost(self) -> None:
        """What the keeper found to be another relay's."""
        for tenure in self._keeper.take_lost():
            self.lose(tenure)

    def lose(self, tenure: Tenure) -> None:
        """This partition is another relay's."""
        self._drop(tenure, "belongs to another relay now")

    def forget(self, tenure: Tenure) -> None:
        """It is not known what was recorded of this partition last: it has to be acquired anew, with its holds."""
        self._drop(tenure, "is in an unknown state and acquired anew when its lease has ended")

    def _drop(self, tenure: Tenure, why: str) -> None:
        if self._estate.lose(tenure) is not None:
            self._stats.partitions_lost += 1
            log.warning("partition %d (token %d) %s", tenure.partition_no, tenure.token, why)
            self._owned_changed()
            self._next["look"] = self._next["idle look"] = 0.0

    def _owned_changed(self) -> None:
        self._stats.partitions = len(self._estate)
        self._keeper.hold(self._estate.tenures())

    # What is parked -----------------------------------------------------------------------------------------------

    def _move_due(self, now: float) -> None:
        self._next["due"] = now + self._settings.due_interval
        free = [one for one in self._estate if one.is_free]
        try:
            moved = self._store.move_due([one.tenure for one in free], self._settings.batch) if free else {}
        except DatabaseUnavailable:
            for one in free:  # it may be committed: then rows are ready below the low marks
                self._lower(one, 0)
            raise
        for number, lowest in moved.items():
            self._lower(self._estate.by_number[number], lowest - 1)
            self._stats.came_due += 1
            self._next["due"] = now

    def _read_holds(self, now: float) -> None:
        """An operator may have released a hold, here or anywhere."""
        for hold in self._store.holds([one.number for one in self._estate], drain_only=True):
            owned = self._estate.by_number.get(hold.stream.partition_no)
            if owned is None or owned.busy:
                continue
            known = owned.holds.get(hold.stream)
            if known is None or known.hold.mode != "drain":
                owned.holds.put(hold, now)

    # The low marks ------------------------------------------------------------------------------------------------

    def _move_marks(self, now: float) -> None:
        for number, mark in self._marks.passed(now).items():
            if (owned := self._estate.by_number.get(number)) is not None:
                owned.passed = max(owned.passed, mark)
        self._marks.mark({one.number: one.settled_to for one in self._estate if one.settled_to > one.passed}, now)

    def _sweep(self, now: float) -> None:
        self._next["sweep"] = now + SWEEP_SECONDS
        spans = [Span(one.number, one.low_id) for one in self._estate if one.is_free]
        for number in self._store.stragglers(spans) if spans else ():
            log.warning("partition %d: an event below the low mark, which should not be possible; it is sent", number)
            self._stats.stragglers += 1
            self._lower(self._estate.by_number[number], 0)

    def _lower(self, owned: Owned, to: int) -> None:
        """There is something to read below the low mark; the next read takes the mark up again."""
        owned.low_id = min(owned.low_id, to)
