"""The consumer's loop: poll, apply each event, acknowledge. One thread, one source, one database connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from .. import faultpoints
from ..clock import Clock
from ..errors import BrokerUnavailable, CannotDecode, PillarboxError
from ..policy.retry import RetryPolicy
from ..ports import Incoming, Source
from .attempt import Applied, DatabaseAway, Duplicate, Failed, attempt
from .database import InboxDatabase
from .incoming import Prepared, Unhandled, prepare
from .plan import MAX_BREAKS, OUTAGE_RETRY, RetryLater, SetAside, after_failure, reason_of
from .registrations import Registrations
from .stats import ConsumerStats
from .stopping import StopFlag

_log = logging.getLogger("pillarbox.consume")

POLL_SECONDS = 0.1  # also the longest a stop goes unnoticed
ACKNOWLEDGE_AFTER_SECONDS = 1.0  # bounds what a crash delivers again when handlers are slow
SERVE_EVERY_SECONDS = 5.0  # Kafka forgets a consumer that does not poll, however busy it is


@dataclass(slots=True)
class Runner:
    """Runs until ``stop`` is set. Raises only what no waiting can cure; outages are waited out."""

    name: str
    source: Source
    database: InboxDatabase
    registrations: Registrations
    retry: RetryPolicy
    stats: ConsumerStats
    stop: StopFlag
    batch: int
    clock: Clock
    chance: Callable[[], float]
    _done: list[Incoming] = field(default_factory=list)
    _oldest_done: float = 0.0
    _served: float = 0.0

    def run(self) -> None:
        """Consume until told to stop; what is finished by then is acknowledged."""
        try:
            while not self.stop.is_set():
                self._one_batch()
        finally:
            self._acknowledge()

    def _one_batch(self) -> None:
        batch = self.source.poll(POLL_SECONDS, self.batch)
        self._served = self.clock.monotonic()
        for incoming in batch:
            if self.stop.is_set():
                break  # not acknowledged: they come again
            self._keep_alive()
            self._one(incoming)
        self._acknowledge()

    def _one(self, incoming: Incoming) -> None:
        self.stats.received += 1
        faultpoints.reach("consumer.received")
        if self._finish(incoming):
            if not self._done:
                self._oldest_done = self.clock.monotonic()
            self._done.append(incoming)
            if self.clock.monotonic() - self._oldest_done >= ACKNOWLEDGE_AFTER_SECONDS:
                self._acknowledge()

    def _finish(self, incoming: Incoming) -> bool:
        """Bring one message to its end; False: it was not, and must not be acknowledged."""
        try:
            prepared = prepare(incoming, self.registrations)
        except CannotDecode as error:
            return self._set_aside(incoming, SetAside(reason_of(error), 1))
        if isinstance(prepared, Unhandled):
            self.stats.unhandled += 1
            self.registrations.note_unhandled(prepared.event_type, self.name)
            return True
        return self._apply(incoming, prepared)

    def _apply(self, incoming: Incoming, event: Prepared) -> bool:
        failures = outages = breaks = 0
        while self.source.holds(incoming):
            match attempt(self.database, self.name, event.event_id, event.calls):
                case Applied():
                    self.stats.applied += 1
                    faultpoints.reach("consumer.after-commit")
                    return True
                case Duplicate():
                    self.stats.duplicates += 1
                    return True
                case DatabaseAway(error, in_handler):
                    breaks = breaks + 1 if in_handler else 0
                    if breaks >= MAX_BREAKS:
                        _log.error("consumer %s: %s lost the database %d times", self.name, event, breaks)
                        return self._set_aside(incoming, SetAside(reason_of(error), failures + breaks))
                    outages += 1
                    self.stats.database_away += 1
                    _log.warning("consumer %s: the database is away, waiting: %s", self.name, reason_of(error))
                    going_on = self._wait(OUTAGE_RETRY.delay(outages, self.chance()))
                case Failed(error, final):
                    failures += 1
                    step = after_failure(error, failures, self.retry, self.chance(), final=final)
                    if isinstance(step, SetAside):
                        _log.error("consumer %s: %s failed %d times", self.name, event, failures, exc_info=error)
                        return self._set_aside(incoming, step)
                    going_on = self._retry(event, step, error)
            if not going_on:
                return False
        self.stats.dropped += 1
        return False

    def _retry(self, event: Prepared, step: RetryLater, error: Exception) -> bool:
        self.stats.retried += 1
        text = "consumer %s: %s failed (attempt %d), again in %.1f s"
        _log.warning(text, self.name, event, step.attempts, step.seconds, exc_info=error)
        return self._wait(step.seconds)

    def _set_aside(self, incoming: Incoming, step: SetAside) -> bool:
        """Until the dead-letter destination has it, confirmed; it is never acknowledged before."""
        tries = 0
        while self.source.holds(incoming):
            try:
                self.source.set_aside(incoming, step.reason, step.attempts)
            except PillarboxError as error:
                tries += 1
                self.stats.broker_away += 1
                _log.warning("consumer %s: the dead-letter destination did not take it: %s", self.name, error)
                if not self._wait(OUTAGE_RETRY.delay(tries, self.chance())):
                    return False
            else:
                self.stats.dead += 1
                _log.error("consumer %s: a message of %r is set aside: %s", self.name, incoming.source, step.reason)
                return True
        self.stats.dropped += 1
        return False

    def _wait(self, seconds: float) -> bool:
        """Wait with the broker connection alive; False when told to stop meanwhile."""
        self._acknowledge()
        until = self.clock.monotonic() + seconds
        while not self.stop.is_set():
            left = until - self.clock.monotonic()
            if left <= 0:
                return True
            self.source.poll(min(left, POLL_SECONDS), 0)
            self._served = self.clock.monotonic()
        return False

    def _keep_alive(self) -> None:
        if self.clock.monotonic() - self._served >= SERVE_EVERY_SECONDS:
            self._acknowledge()  # the poll may give partitions away, and with them the right to commit
            self.source.poll(0, 0)
            self._served = self.clock.monotonic()

    def _acknowledge(self) -> None:
        if not self._done:
            return
        done, self._done = self._done, []
        try:
            self.source.acknowledge(done)
        except BrokerUnavailable as error:
            # Not lost: they come again, and the inbox knows them.
            self.stats.broker_away += 1
            _log.warning("consumer %s: %d messages could not be acknowledged: %s", self.name, len(done), error)
            return
        self.stats.acknowledged += len(done)
        faultpoints.reach("consumer.after-ack")
