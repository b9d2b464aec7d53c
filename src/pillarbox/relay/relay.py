"""The row-lease relay: claim, publish, settle, over and over.

Competing workers without order between events. One thread does the work; a second one renews leases. No row lock is
ever held while the broker is spoken to: the claim is committed before the first byte is sent.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

from .. import faultpoints
from ..clock import Clock
from ..errors import BrokerUnavailable, DatabaseUnavailable
from ..ports import Claim, Confirmed, Delivery, Outcome, Publisher, Settled, Settlement, Unavailable, WorkStore
from .away import Away
from .lifecycle import Lifecycle
from .plan import Chance, Plan, aside, give_all_back, is_charged, plan
from .renewer import Renewer
from .settings import RelaySettings
from .triage import triage

log = logging.getLogger("pillarbox.relay")

_SETTLE_PAUSE = 0.2  # seconds between attempts to record outcomes while the database is away


class Relay(Lifecycle):
    """Brings committed events to the broker, at least once.

    Competing workers, no order between events. ``run()`` blocks until ``stop()``; ``started()`` runs it on a thread of
    its own inside an application. Neither store
    nor publisher is shared with anything else; both are closed when the run ends.

    >>> from pillarbox.publish.memory import MemoryPublisher
    >>> from pillarbox.store.memory import MemoryStore
    >>> relay = Relay(MemoryStore(), MemoryPublisher())
    >>> relay.run(until_empty=True)
    >>> relay.stats.sent
    0
    """

    def __init__(
        self,
        store: WorkStore,
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
        self._fruitless = False  # the last batch met nothing but destinations in trouble
        self._renewer = Renewer(store, self.settings.lease, self.stats)
        self._next_due = 0.0

    def _run(self, until_empty: bool) -> None:
        self._renewer.start()
        try:
            self._work(until_empty)
        finally:
            self._renewer.stop()
            self._publisher.close()
            self._store.close()

    # The loop -----------------------------------------------------------------------------------------------------

    def _work(self, until_empty: bool) -> None:
        pause = self.settings.poll_min
        while not self._stopping:
            try:
                worked = self.step()
            except DatabaseUnavailable as error:
                self.stats.database_errors += 1
                self._pulse.moved(database=False)
                log.warning("database out of reach, trying again: %s", error)
                self._rest(self.settings.probe_interval)
                continue
            self._pulse.moved()
            if worked:
                pause = self.settings.poll_min
                if self._fruitless:
                    self._rest(self.settings.probe_interval)
                continue
            if until_empty and not self._breaker.is_open:
                return
            self._check_patience()
            self._rest(max(pause, self._breaker.wait_for(self._clock.monotonic())))
            pause = min(pause * 2, self.settings.poll_max)

    def step(self) -> bool:
        """One round: claim, publish, settle. Returns False when there was nothing to do, or nothing may be done now."""
        self._check_process()
        permit = self._breaker.permit(self._clock.monotonic())
        if permit == "wait":
            return False
        self._move_due()
        claim = self._store.claim(1 if permit == "probe" else self.settings.batch)
        if not claim.deliveries and not claim.orphans:
            return False
        faultpoints.reach("relay.after-claim")
        self.stats.claimed += len(claim.deliveries)
        held_until = self._clock.monotonic() + self.settings.lease
        keys = [d.key for d in claim.deliveries]
        self._renewer.hold(claim.token, keys)
        try:
            self._carry(claim, held_until)
        finally:
            self._renewer.drop(claim.token)
        return True

    def _carry(self, claim: Claim, held_until: float) -> None:
        if self._stopping:
            self._record(give_all_back(claim), held_until)
            return
        sorted_out = triage(claim.deliveries)
        if sorted_out.give_back or sorted_out.give_up:
            # Before anything is sent: should this process die of what it sends, only the group keeps its claim counted.
            self._record(aside(claim.token, sorted_out), held_until)
            self._renewer.hold(claim.token, [d.key for d in sorted_out.publish])
        outcomes = self._publish(sorted_out.publish)
        faultpoints.reach("relay.after-confirm")
        decided = plan(claim, sorted_out.publish, outcomes, self.settings.retry, self._chance, self._pause)
        self._heed(decided)
        self._heed_destinations(decided, sorted_out.publish, outcomes)
        self._record(decided.settlement, held_until)
        faultpoints.reach("relay.after-settle")

    def _publish(self, deliveries: Sequence[Delivery]) -> list[Outcome]:
        if not deliveries:
            return []
        try:
            return self._publisher.publish([d.message for d in deliveries])
        except BrokerUnavailable as error:
            return [Unavailable(error.message)] * len(deliveries)

    def _heed(self, decided: Plan) -> None:
        """Open or close the breaker by what the broker said, and count."""
        if decided.outage is not None:
            if self._breaker.trouble(self._clock.monotonic()):
                self.stats.outages += 1
                log.warning("broker out of reach, events wait uncharged: %s", decided.outage)
        elif (decided.answered or decided.away) and self._breaker.success():
            log.info("broker is back")
        self.stats.unknown += decided.unknown

    def _heed_destinations(self, decided: Plan, published: Sequence[Delivery], outcomes: Sequence[Outcome]) -> None:
        """Remember which destinations are in trouble while the broker answers, and say so once."""
        self._fruitless = bool(decided.away) and not decided.answered
        if self._away:
            taken = {
                d.message.destination for d, o in zip(published, outcomes, strict=True) if isinstance(o, Confirmed)
            }
            for destination in taken - decided.away.keys():
                if self._away.answered(destination):
                    log.info("destination %r is back", destination)
        for destination, reason in decided.away.items():
            if self._away.trouble(destination, self._clock.monotonic()):
                self.stats.outages += 1
                log.warning("destination %r is out of reach, its events wait uncharged: %s", destination, reason)

    def _pause(self, destination: str) -> float:
        return self._away.pause(destination, self._clock.monotonic(), self._chance())

    def _record(self, settlement: Settlement, held_until: float) -> None:
        """Write the outcomes; while the database is away, keep trying for as long as the lease can hold."""
        if settlement.is_empty:
            return
        while True:
            try:
                settled = self._store.settle(settlement)
            except DatabaseUnavailable as error:
                self.stats.database_errors += 1
                if self._clock.monotonic() >= held_until or self._stopping:
                    count = len(settlement.sent) + len(settlement.parked)
                    self.stats.unrecorded += count
                    log.error("outcomes of %d events are not recorded, they will be sent again: %s", count, error)
                    raise
                self._pulse.moved(database=False)
                log.warning("sent but not recorded yet, trying again: %s", error)
                self._rest(_SETTLE_PAUSE)
            else:
                self._count(settled, settlement)
                return

    def _count(self, settled: Settled, settlement: Settlement) -> None:
        self.stats.sent += settled.sent
        self.stats.given_back += settled.given_back
        if settled.parked:
            dead = sum(row.state == "DEAD" for row in settlement.parked)
            postponed = sum(not is_charged(row) for row in settlement.parked)
            self.stats.dead += dead
            self.stats.postponed += postponed
            self.stats.retried += max(0, settled.parked - dead - postponed)
            for row in settlement.parked:
                level = logging.ERROR if row.state == "DEAD" else logging.INFO if is_charged(row) else logging.DEBUG
                log.log(
                    level,
                    "event row %d, destination %d: %s, %s",
                    row.key.id,
                    row.key.dest,
                    row.state,
                    row.error,
                )
        if settled.lost:  # the store has said which
            self.stats.lost += len(settled.lost)

    # Small duties -------------------------------------------------------------------------------------------------

    def _move_due(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_due:
            moved = self._store.move_due(self.settings.batch)
            self.stats.came_due += moved
            if moved < self.settings.batch:
                self._next_due = now + self.settings.due_interval
