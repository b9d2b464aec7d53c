"""One transaction's worth of work: decode, attempt, and say what follows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import faultpoints
from ..errors import CannotDecode
from ..policy.retry import RetryPolicy
from ..ports import Incoming
from . import plan
from .attempt import Applied, DatabaseAway, Duplicate, Failed, Result, attempt
from .board import Settled
from .database import InboxDatabase
from .desk import Job
from .incoming import Prepared, Unhandled, prepare
from .plan import Finish, Gone, RetryLater, SetAside, Step, WaitOut, after_failure, reason_of
from .registrations import Registrations

_log = logging.getLogger("pillarbox.consume")


@dataclass(slots=True)
class Performer:
    """Shared by all workers of a consumer; the database is each worker's own.

    ``holds`` tells whether a message is still ours, ``count`` adds to a counter.
    """

    name: str
    registrations: Registrations
    retry: RetryPolicy
    chance: Callable[[], float]
    holds: Callable[[Incoming], bool]
    count: Callable[[str], None]
    outages: int = 0

    def perform(self, jobs: Sequence[Job], database: InboxDatabase) -> list[Settled]:
        """Carry the work out; interrupts (KeyboardInterrupt, …) roll back and pass."""
        return [(job, self._one(job, database)) for job in jobs]

    def _one(self, job: Job, database: InboxDatabase) -> Step:
        if not self.holds(job.incoming):
            return Gone()
        try:
            event = prepare(job.incoming, self.registrations)
        except CannotDecode as error:
            return SetAside(reason_of(error), job.failures + 1)
        if isinstance(event, Unhandled):
            self.registrations.note_unhandled(event.event_type, self.name)
            self.count("unhandled")
            return Finish()
        return self._judge(job, event, attempt(database, self.name, event.event_id, event.calls))

    def _judge(self, job: Job, event: Prepared, result: Result) -> Step:
        if not isinstance(result, DatabaseAway):
            self.outages = job.breaks = 0
        match result:
            case Applied():
                self.count("applied")
                faultpoints.reach("consumer.after-commit")
                return Finish()
            case Duplicate():
                self.count("duplicates")
                return Finish()
            case DatabaseAway():
                return self._away(job, event, result)
            case Failed(error, final):
                return self._failed(job, event, error, final=final)

    def _away(self, job: Job, event: Prepared, result: DatabaseAway) -> WaitOut | SetAside:
        job.breaks = job.breaks + 1 if result.in_handler else 0
        if job.breaks >= plan.MAX_BREAKS:
            _log.error("consumer %s: %s lost the database %d times", self.name, event, job.breaks)
            return SetAside(reason_of(result.error), job.failures + job.breaks)
        _log.warning("consumer %s: the database is away, waiting: %s", self.name, reason_of(result.error))
        if result.in_handler or result.busy:
            job.outages += 1
            return WaitOut(plan.OUTAGE_RETRY.delay(job.outages, self.chance()), everybody=False)
        self.outages += 1
        return WaitOut(plan.OUTAGE_RETRY.delay(self.outages, self.chance()), everybody=True)

    def _failed(self, job: Job, event: Prepared, error: Exception, *, final: bool) -> RetryLater | SetAside:
        step = after_failure(error, job.failures + 1, self.retry, self.chance(), final=final)
        if isinstance(step, SetAside):
            _log.error("consumer %s: %s failed %d times", self.name, event, step.attempts, exc_info=error)
        else:
            text = "consumer %s: %s failed (attempt %d), again in %.1f s"
            _log.warning(text, self.name, event, step.attempts, step.seconds, exc_info=error)
        return step
