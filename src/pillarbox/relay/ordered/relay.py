"""The partition-lease relay: read, publish, settle, round after round.

One thread reads and settles, a second one speaks to the broker, a third renews the leases. A partition has at most one
round under way, so that a read, which starts at the partition's low mark, finds exactly what is not sent yet, in one
snapshot: an event that committed late is seen together with, or before, every later one of its key.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import Final

from ... import faultpoints
from ...clock import Clock
from ...errors import BrokerUnavailable, DatabaseUnavailable
from ...ports import OrderedSettlement, OrderedStore, Publisher
from ..away import Away
from ..health import Health
from ..lifecycle import Lifecycle
from ..plan import Chance
from ..settings import RelaySettings
from . import careful
from .duties import Duties
from .estate import Estate, Owned, Streams
from .keeper import Keeper
from .plan import Decided, Rules, decide
from .reader import Reader
from .rounds import Round
from .sender import Finished, Sender
from .settling import HANDED_AHEAD, Patience, Settling

log = logging.getLogger("pillarbox.relay")

_BUSY_POLL: Final = 0.05  # seconds between looks for more while a round is under way
_RAMP: Final = 8  # after an outage the rounds grow by this factor: 1, 8, 64, …


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
        self._keeper = Keeper(store, self.settings.lease, self._clock.monotonic, self.stats)
        self._duties = Duties(store, self._estate, self._keeper, self.settings, self.stats)
        self._reader = Reader(store, self._estate, self._streams, abreast=publisher.capabilities.one_in_flight)
        patience = Patience(self.settings.lease, self._clock.monotonic, self._await_database, lambda: self._stopping)
        self._settling = Settling(store, self.stats, patience, self._duties)
        self._holds_on_failure = self.settings.on_failure == "hold"
        self._rules = Rules(self.settings.retry, self.settings.on_failure, chance, self._pause)
        self._allowed = self.settings.batch  # grows again after an outage
        self._unsure_since: float | None = None  # the database was lost: the leases have to be confirmed
        self._active_until = 0.0

    def health(self) -> Health:
        """Whether it lives, and whether it delivers now. Costs nothing and asks nobody; safe from other threads."""
        self._check_process()
        return self._pulse.health(
            broker_reachable=self.broker_reachable,
            owned=len(self._estate),
            entitled=self._duties.entitled,
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
                if self.step():
                    pause = self.settings.poll_min
                    self._active_until = self._clock.monotonic() + self.settings.linger
                elif self._sender.under_way:
                    # Nothing else to begin: look for more ever less often. The broker's answer ends each wait.
                    self._settle(self._sender.take(pause if self._sender.has_room else 1.0))
                    pause = min(pause * 2, _BUSY_POLL)
                elif until_empty and self._is_done():
                    return
                else:
                    self._check_patience()
                    self._rest(max(pause, self._breaker.wait_for(self._clock.monotonic())))
                    if self._clock.monotonic() > self._active_until:
                        pause = min(pause * 2, self.settings.poll_max)
            except DatabaseUnavailable as error:
                self._database_lost(error)
            else:
                # While it is not sure of its leases, it waits for the keeper to reach the database.
                self._pulse.moved(database=self._unsure_since is None and self._keeper.may_hand_out)

    def _database_lost(self, error: DatabaseUnavailable) -> None:
        self.stats.database_errors += 1
        self._pulse.moved(database=False)
        self._unsure_since = self._clock.monotonic()
        self._keeper.renew_now()
        log.warning("database out of reach, trying again: %s", error)
        self._rest(self.settings.probe_interval)

    def _await_database(self, seconds: float) -> None:
        self._pulse.moved(database=False)
        self._rest(seconds)

    def step(self) -> bool:
        """Settle what has finished, then begin one more round. Returns False when there was nothing to begin."""
        self._check_process()
        settled = self._settle(self._sender.take(0))
        self._duties.forget_lost()
        if not self._sure():
            return settled
        now = self._clock.monotonic()
        idle = not settled and not self._sender.under_way and now > self._active_until
        if idle and self._estate and not self._breaker.is_open:
            if not self._duties.when_idle(now):
                return False
        else:
            self._duties.at_work(now)
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
        return not self._breaker.is_open and self._duties.is_done(self._clock.monotonic())

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
        round_ = self._reader.next_round(limit, budget, now) if budget > 0 else None
        return round_ is not None and self._hand_over(round_)

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
        before = {number: one.handed_to for number, one in round_.owned.items()}
        try:
            self._tell_bounds(round_)
        except DatabaseUnavailable:
            for number, handed_to in before.items():
                round_.owned[number].handed_to = handed_to
            raise

    def _tell_bounds(self, round_: Round) -> None:
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
                round_.drop(tenure.partition_no)
                self._duties.lose(tenure)

    def _charge(self, owned: Owned, round_: Round) -> None:
        for delivery in round_.send:
            claims = owned.charged.get(delivery.key)
            if claims is None:  # else it was sent before, and we live: an outage, say, must not add up to a crash loop
                claims = owned.charged[delivery.key] = self._store.charge(owned.tenure, delivery.key, round_.is_drain)
            if careful.is_given_up(claims):
                round_.give_up(delivery, self._streams.of(delivery), careful.reason(), hold=self._holds_on_failure)

    # Ending a round -----------------------------------------------------------------------------------------------

    def _settle(self, finished: Sequence[Finished]) -> bool:
        for at, (round_, outcomes) in enumerate(finished):
            faultpoints.reach("relay.after-confirm")
            decided = decide(round_, outcomes, self._streams, self._rules)
            self._heed(decided)
            try:
                self._finish(round_, decided)
            except DatabaseUnavailable:
                for later in finished[at + 1 :]:
                    self._settling.abandon(later.round, len(later.round.send))
                raise
            faultpoints.reach("relay.after-settle")
        return bool(finished)

    def _finish(self, round_: Round, decided: Decided) -> None:
        self._settling.settle(round_, decided)
        self._duties.release_leaving()

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
            self._sender.begin_no_more()
            self._keeper.stop()  # a renewal after the end would register this relay again: a ghost that has a share
            self._duties.release_all()
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
