"""The partition-lease relay: read, publish, settle, round after round.

One thread reads and settles, a second one speaks to the broker, a third renews the leases. A partition has at most one
round under way, so that a read, which starts at the partition's low mark, finds exactly what is not sent yet, in one
snapshot: an event that committed late is seen together with, or before, every later one of its key.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Final

from ... import faultpoints
from ...clock import Clock
from ...errors import BrokerUnavailable, DatabaseUnavailable
from ...ports import (
    Delivery,
    Hold,
    OrderedSettlement,
    OrderedStore,
    Publisher,
    Reading,
    Span,
    Stream,
    Tenure,
)
from ..away import Away
from ..health import Health
from ..lifecycle import Lifecycle
from ..plan import Chance
from ..settings import RelaySettings
from . import careful
from .estate import Estate, Owned, Streams
from .keeper import Keeper
from .lowmark import LowMarks
from .plan import Decided, Rules, decide
from .rounds import NeedsPayload, Round, fresh
from .sender import Finished, Sender
from .settling import HANDED_AHEAD, Patience, Settling
from .shares import next_look, quota, share

log = logging.getLogger("pillarbox.relay")

LOOK_SECONDS: Final = 1.0  # between looks at the fleet while at work
SWEEP_SECONDS: Final = 60.0
_HEADS_PER_ROUND: Final = 200
_RAMP: Final = 8


class OrderedRelay(Lifecycle):
    """Brings committed events to the broker at least once, in order for each destination and key.

    Takes the same calls as :class:`pillarbox.relay.Relay`. Several relays on the same tables share the partitions.

    >>> from pillarbox.publish.memory import MemoryPublisher
    >>> from pillarbox.store.memory_ordered import MemoryOutbox, MemoryPartitionStore
    >>> store = MemoryPartitionStore(MemoryOutbox(), relay_id="relay-1", lease=60.0)
    >>> relay = OrderedRelay(store, MemoryPublisher())
    >>> relay.run(until_empty=True)
    >>> relay.stats.sent
    0
    """

    def __init__(
        self,
        store: OrderedStore,
        publisher: Publisher,
        settings: RelaySettings | None = None,
        *,
        clock: Clock | None = None,
        chance: Chance = random.random,
    ) -> None:
        super().__init__(publisher, settings or RelaySettings(), clock)
        self._store = store
        self._chance = chance
        self._away = Away()
        self._streams = Streams()
        self._estate = Estate()
        self._sender = Sender(publisher)
        self._keeper = Keeper(store, self.settings.lease, self._clock.monotonic)
        self._marks = LowMarks(store.writers, self.settings.late_commit)
        patience = Patience(self.settings.lease, self._clock.monotonic, self._rest, lambda: self._stopping)
        self._settling = Settling(store, self.stats, patience, self._lose)
        self._holds_on_failure = self.settings.on_failure == "hold"
        self._rules = Rules(self.settings.retry, self.settings.on_failure, chance, self._pause)
        self._allowed = self.settings.batch  # grows again after an outage
        self._start = 0
        self._drained_last = False
        self._relays_seen = 1
        self._entitled = 0
        self._unsure_since: float | None = None  # the database was lost: the leases have to be confirmed
        self._next = dict.fromkeys(("look", "due", "holds", "marks", "sweep"), 0.0)
        self._active_until = 0.0

    def health(self) -> Health:
        """Whether it lives, and whether it delivers now. Costs nothing and asks nobody; safe from other threads."""
        return self._pulse.health(
            broker_reachable=self.broker_reachable,
            owned=len(self._estate),
            entitled=self._entitled,
            details={"held_streams": sum(len(one.holds) for one in list(self._estate))},
        )

    # The loop -----------------------------------------------------------------------------------------------------

    def _run(self, until_empty: bool) -> None:
        try:
            if self._patiently(lambda: self._store.enter(self.settings.lease)):
                self._keeper.start()
                self._sender.start()
                self._work(until_empty)
        finally:
            self._leave()

    def _work(self, until_empty: bool) -> None:
        pause = self.settings.poll_min
        while not self._stopping:
            try:
                worked = self.step()
            except DatabaseUnavailable as error:
                self.stats.database_errors += 1
                self._pulse.moved(database=False)
                self._unsure_since = self._clock.monotonic()
                self._keeper.renew_now()
                log.warning("database out of reach, trying again: %s", error)
                self._rest(self.settings.probe_interval)
                continue
            self._pulse.moved()
            if worked:
                pause = self.settings.poll_min
                self._active_until = self._clock.monotonic() + self.settings.linger
            elif self._sender.under_way:
                self._settle(self._sender.take(pause if self._sender.has_room else 1.0))
            elif until_empty and self._is_done():
                return
            else:
                self._rest(max(pause, self._breaker.wait_for(self._clock.monotonic())))
                if self._clock.monotonic() > self._active_until:
                    pause = min(pause * 2, self.settings.poll_max)

    def step(self) -> bool:
        """Settle what has finished, then begin one more round. Returns False when there was nothing to begin."""
        self._check_process()
        settled = self._settle(self._sender.take(0))
        self._forget_lost()
        if not self._sure():
            return settled
        idle = not settled and not self._sender.under_way and self._clock.monotonic() > self._active_until
        if idle and self._estate and not self._breaker.is_open:
            if not self._look_for_signs():
                return False
        else:
            self._duties()
        return self._begin_round() or settled

    def _sure(self) -> bool:
        """May anything be handed out: are the leases ours beyond doubt?"""
        if self._unsure_since is not None:
            if not self._keeper.is_sure_since(self._unsure_since):
                return False
            self._unsure_since = None
        if self._keeper.may_hand_out:
            return True
        self._keeper.renew_now()
        return False

    def _is_done(self) -> bool:
        if self._breaker.is_open or not self._estate:
            return False
        spans = [Span(one.number, one.low_id) for one in self._estate]
        return not self._store.signs(spans).ready and not self._work_due(self._clock.monotonic())

    # Duties: each at its own pace ---------------------------------------------------------------------------------

    def _look_for_signs(self) -> bool:
        """Idle: one cheap statement tells whether there is anything to do. Returns False when there is nothing."""
        now = self._clock.monotonic()
        if now >= self._next["sweep"]:
            self._sweep(now)
        signs = self._store.signs([Span(one.number, one.low_id) for one in self._estate])
        if signs.relays != self._relays_seen or now >= self._next["look"]:
            self._look(now)
        if signs.due:
            self._move_due(now)
        if signs.drain:
            self._read_holds(now)
        return signs.ready or signs.due or self._work_due(now)

    def _duties(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next["look"]:
            self._look(now)
        if now >= self._next["due"]:
            self._move_due(now)
        if now >= self._next["holds"]:
            self._next["holds"] = now + self.settings.due_interval
            if any(one.holds for one in self._estate):
                self._read_holds(now)
        if now >= self._next["marks"]:
            self._next["marks"] = now + 0.5
            self._move_marks(now)
        if now >= self._next["sweep"]:
            self._sweep(now)

    def _look(self, now: float) -> None:
        """Compare what is owned with the fair share: give up what is too much, take what is free."""
        fleet = self._store.fleet()
        self._relays_seen = max(1, len(fleet.relays))
        mine = {one.number for one in self._estate if not one.leaving}
        self._entitled = quota(fleet.relays, self._store.relay_id, len(fleet.partitions))
        todo = share(fleet, self._store.relay_id, mine)
        longest = self.settings.lease / 3 if len(fleet.relays) <= 1 else LOOK_SECONDS
        self._next["look"] = now + (LOOK_SECONDS if todo.take or todo.give else next_look(fleet, mine, longest))
        for one in sorted((o for o in self._estate if not o.leaving), key=lambda o: (o.busy, -o.number))[: todo.give]:
            one.leaving = True
        self._release_leaving()
        if todo.take:
            for partition in self._store.acquire(todo.take):
                owned = self._estate.add(partition, now)
                self.stats.acquired += 1
                if owned.is_careful:
                    self.stats.crashes_seen += 1
                    log.warning(
                        "partition %d: an owner crashed with events up to row %d on their way, %d in a row",
                        owned.number, owned.careful_to, owned.crashes,
                    )  # fmt: skip
            self._owned_changed()

    def _release_leaving(self) -> None:
        gone = [one for one in self._estate if one.leaving and not one.busy]
        if gone:
            self._store.release([one.progress(handed_to=0) for one in gone])
            for one in gone:
                self._estate.lose(one.tenure)
            self.stats.released += len(gone)
            self._owned_changed()

    def _move_due(self, now: float) -> None:
        self._next["due"] = now + self.settings.due_interval
        tenures = [one.tenure for one in self._estate if one.is_free]
        moved = self._store.move_due(tenures, self.settings.batch) if tenures else {}
        for number, lowest in moved.items():
            self._lower(self._estate.by_number[number], lowest - 1)
            self.stats.came_due += 1
        if moved:
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

    def _move_marks(self, now: float) -> None:
        for number, mark in self._marks.passed(now).items():
            if (owned := self._estate.by_number.get(number)) is not None:
                owned.passed = max(owned.passed, mark)
        rising = {one.number: one.settled_to for one in self._estate if one.settled_to > one.passed}
        self._marks.mark(rising, now)

    def _sweep(self, now: float) -> None:
        self._next["sweep"] = now + SWEEP_SECONDS
        free = [one for one in self._estate if one.is_free]
        for number in self._store.stragglers([Span(one.number, one.low_id) for one in free]) if free else ():
            log.warning("partition %d: an event below the low mark, which should not be possible; it is sent", number)
            self.stats.stragglers += 1
            self._lower(self._estate.by_number[number], 0)

    def _lower(self, owned: Owned, to: int) -> None:
        """There is something to read below the low mark; the next read takes the mark up again."""
        owned.low_id = min(owned.low_id, to)

    def _forget_lost(self) -> None:
        for tenure in self._keeper.take_lost():
            self._lose(tenure)

    def _lose(self, tenure: Tenure) -> None:
        if self._estate.lose(tenure) is not None:
            self.stats.partitions_lost += 1
            log.warning("partition %d (token %d) belongs to another relay now", tenure.partition_no, tenure.token)
            self._owned_changed()
            self._next["look"] = 0.0

    def _owned_changed(self) -> None:
        self.stats.partitions = len(self._estate)
        self._keeper.hold(self._estate.tenures())

    # Beginning a round --------------------------------------------------------------------------------------------

    def _begin_round(self) -> bool:
        now = self._clock.monotonic()
        permit = self._breaker.permit(now)
        if permit == "wait" or self._stopping or not self._sender.has_room:
            return False
        if permit == "probe" and self._sender.under_way:
            return False
        limit = 1 if permit == "probe" else min(self._allowed, self.settings.batch)
        budget = self.settings.max_bytes - self._sender.bytes_under_way
        if budget <= 0:
            return False
        begin = (self._begin_fresh, self._begin_drain) if self._drained_last else (self._begin_drain, self._begin_fresh)
        return any(one(limit, budget, now) for one in begin)

    def _begin_fresh(self, limit: int, budget: int, now: float) -> bool:
        self._drained_last = False
        suspect = self._careful_partition()
        if suspect is not None and suspect.is_free:
            # Alone: what a crash takes along is then known.
            reading, round_ = self._read({suspect.number: suspect}, careful.group_size(suspect.crashes, limit), budget)
            self._end_care(suspect, reading, now)
            if round_.owned:
                return self._hand_over(round_)
        free = self._estate.free(lambda one: not one.is_careful)
        read = {one.number: one for one in free if one.number >= self._start} or {one.number: one for one in free}
        if not read:
            return False
        all_of_them = len(read) == len(free)
        reading, round_ = self._read(read, limit, budget)
        self._start = max(round_.owned) + 1 if reading.more and round_.owned else 0
        if not round_.owned:
            return not all_of_them and self._begin_fresh(limit, budget, now)
        return self._hand_over(round_)

    def _read(self, read: Mapping[int, Owned], limit: int, budget: int) -> tuple[Reading, Round]:
        spans = [Span(one.number, one.low_id) for one in read.values()]
        bare = frozenset(lane for one in read.values() if one.holds for lane in one.holds.lanes()[:1000])
        reading = self._store.read(spans, limit, budget, bare)
        try:
            round_ = fresh(reading, read, self._streams, bare)
        except NeedsPayload:
            reading = self._store.read(spans, limit, budget, ())
            round_ = fresh(reading, read, self._streams, frozenset())
        for number, to in round_.read_to.items():
            if number not in round_.owned:  # nothing is left there up to the mark
                read[number].low_id = max(read[number].low_id, to)
        return reading, round_

    def _careful_partition(self) -> Owned | None:
        """The one partition with a crash behind it that may be worked on."""
        careful_ones = [one for one in self._estate if one.is_careful and not one.leaving]
        busy = [one for one in careful_ones if one.busy]
        return next(iter(busy or sorted(careful_ones, key=lambda one: one.number)), None)

    def _end_care(self, owned: Owned, reading: Reading, now: float) -> None:
        """All that was on its way at the crash is through, and nothing parked waits to be tried."""
        left = any(d.key.id <= owned.careful_to for d in reading.deliveries if d.key.partition_no == owned.number)
        if not left and not owned.holds.due(now, 1):
            log.info("partition %d: past the events of the crash", owned.number)
            owned.crashes = owned.careful_to = 0

    def _begin_drain(self, limit: int, budget: int, now: float) -> bool:
        """Parked events whose hold is due: heads of many streams together, or one stream's long tail."""
        one_careful = self._careful_partition()
        for owned in self._estate.free(lambda one: bool(one.holds) and (not one.is_careful or one is one_careful)):
            if owned.is_careful:
                limit = careful.group_size(owned.crashes, limit)
            due = owned.holds.due(now, min(limit, _HEADS_PER_ROUND))
            if due:
                self._drained_last = True
                return self._drain(owned, due, limit, budget)
        return False

    def _drain(self, owned: Owned, due: Sequence[Hold], limit: int, budget: int) -> bool:
        send: list[Delivery] = []
        draining: dict[Stream, bool] = {}
        size = 0
        for hold in due:
            if len(send) >= limit or size >= budget:
                break
            head_alone = hold.mode != "drain"
            at_most = 1 if head_alone else limit - len(send)
            reading = self._store.read_parked(hold.stream, None, at_most, budget - size)
            draining[hold.stream] = reading.more
            send += reading.deliveries
            size += sum(len(delivery.message.payload) for delivery in reading.deliveries)
        round_ = Round({owned.number: owned}, send, [], {}, draining, size)
        return self._hand_over(round_)

    def _work_due(self, now: float) -> bool:
        return any(one.is_free and one.holds and one.holds.due(now, 1) for one in self._estate)

    def _hand_over(self, round_: Round) -> bool:
        """From here on its events may be on their way."""
        for owned in round_.owned.values():
            owned.busy = True
        try:
            self._make_known(round_)
        except DatabaseUnavailable:
            for owned in round_.owned.values():
                owned.busy = False
            raise
        if round_.send:
            faultpoints.reach("relay.after-claim")
            self.stats.claimed += len(round_.send)
            self._sender.submit(round_)
        else:
            self._finish(round_, decide(round_, (), self._streams, self._rules))
        return True

    def _make_known(self, round_: Round) -> None:
        """Before ids are handed out, the database has to know it; nearly always the settlement before said so."""
        progress = []
        for number, highest in round_.highest().items():
            owned = round_.owned[number]
            if owned.is_careful:
                owned.handed_to = max(highest, owned.low_id, 1)
                if careful.is_alone(owned.crashes):
                    self._charge(owned, round_)
                progress.append(owned.progress())
            elif max(highest, 1) > owned.handed_to:
                owned.handed_to = highest + HANDED_AHEAD
                progress.append(owned.progress())
        if progress:
            for tenure in self._store.settle(OrderedSettlement(progress)).lost:
                self._drop_from(round_, tenure)

    def _charge(self, owned: Owned, round_: Round) -> None:
        for delivery in round_.send:
            claims = self._store.charge(owned.tenure, delivery.key, round_.is_drain)
            if careful.is_given_up(claims):
                round_.give_up(delivery, self._streams.of(delivery), careful.reason(), hold=self._holds_on_failure)

    def _drop_from(self, round_: Round, tenure: Tenure) -> None:
        number = tenure.partition_no
        round_.send = [d for d in round_.send if d.key.partition_no != number]
        round_.aside = [a for a in round_.aside if a.key.partition_no != number]
        round_.owned = {n: o for n, o in round_.owned.items() if n != number}
        self._lose(tenure)

    # Ending a round -----------------------------------------------------------------------------------------------

    def _settle(self, finished: Sequence[Finished]) -> bool:
        for round_, outcomes in finished:
            faultpoints.reach("relay.after-confirm")
            decided = decide(round_, outcomes, self._streams, self._rules)
            self._heed(decided)
            self._finish(round_, decided)
            faultpoints.reach("relay.after-settle")
        return bool(finished)

    def _finish(self, round_: Round, decided: Decided) -> None:
        self._settling.settle(round_, decided)
        self._release_leaving()

    def _heed(self, decided: Decided) -> None:
        """Open or close the breaker by what the broker said; remember which destinations are in trouble."""
        now = self._clock.monotonic()
        if decided.outage is not None:
            self._allowed = 1
            if self._breaker.trouble(now):
                self.stats.outages += 1
                log.warning("broker out of reach, events wait uncharged: %s", decided.outage)
        elif decided.answered or decided.away:
            self._allowed = min(self.settings.batch, self._allowed * _RAMP)
            if self._breaker.success():
                log.info("broker is back")
        self.stats.unknown += decided.unknown
        self.stats.skipped += decided.skipped
        for destination, reason in decided.away.items():
            if self._away.trouble(destination, now):
                self.stats.outages += 1
                log.warning("destination %r is in trouble, its events wait: %s", destination, reason)
        if self._away:
            for destination in decided.taken - decided.away.keys():
                if self._away.answered(destination):
                    log.info("destination %r is back", destination)

    def _pause(self, destination: str) -> float:
        return self._away.pause(destination, self._clock.monotonic(), self._chance())

    # Leaving ------------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Finish what is under way, then let others have the partitions at once."""
        until = time.monotonic() + self.settings.broker_deadline + 1.0
        try:
            while self._sender.under_way and time.monotonic() < until:
                self._settle(self._sender.take(min(0.5, self.settings.broker_deadline)))
            self._store.release(
                [one.progress(handed_to=None if one.busy else 0) for one in self._estate if not one.lost]
            )
            self.stats.released += len(self._estate)
            self._store.leave()
        except DatabaseUnavailable as error:
            log.warning("the partitions could not be released, others wait for their leases: %s", error)
        except BrokerUnavailable as error:
            log.warning("the last events under way are not known to have arrived: %s", error)
        finally:
            self._keeper.stop()
            self._sender.stop(2.0)
            self._publisher.close()
            self._store.close()
