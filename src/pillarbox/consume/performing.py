"""One transaction's worth of work: decode, attempt, and say what follows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import faultpoints
from ..errors import CannotDecode, NewerSchemaVersion, PillarboxError, UnknownEventType
from ..ports import Incoming
from . import plan
from .attempt import Applied, DatabaseAway, Duplicate, Failed, Result, attempt
from .batch import attempt_batch
from .board import Settled
from .choices import Choices
from .database import InboxDatabase
from .desk import Job
from .incoming import ForeignMessage, Prepared, Unhandled, prepare
from .plan import (
    Discard,
    Finish,
    Gone,
    PutBack,
    RetryLater,
    SetAside,
    Step,
    Untouched,
    WaitOut,
    after_failure,
    reason_of,
)
from .registrations import Registrations
from .verdicts import Policy, verdict_on

Todo = tuple[Job, Prepared]

_log = logging.getLogger("pillarbox.consume")


@dataclass(slots=True)
class Performer:
    """Shared by all workers of a consumer; the database is each worker's own.

    ``holds`` tells whether a message is still ours, ``count`` adds to a counter, ``stopping`` says that no more than
    necessary should be begun.
    """

    name: str
    registrations: Registrations
    choices: Choices
    chance: Callable[[], float]
    holds: Callable[[Incoming], bool]
    count: Callable[[str, int], None]
    stopping: Callable[[], bool]
    outages: int = 0

    def perform(self, jobs: Sequence[Job], database: InboxDatabase) -> list[Settled]:
        """Carry the work out; interrupts (KeyboardInterrupt, …) roll back and pass."""
        steps: list[Settled] = []
        events: list[Todo] = []
        for job in jobs:
            event = self._prepare(job)
            if isinstance(event, Prepared):
                events.append((job, event))
            else:
                steps.append((job, event))
        return steps + (self._batch(events, database) if len(events) > 1 else self._one_by_one(events, database))

    def _prepare(self, job: Job) -> Prepared | Step:
        if not self.holds(job.incoming):
            return Gone()
        try:
            event = prepare(job.incoming, self.registrations)
        except ForeignMessage as error:
            return self._unwanted(job, self.choices.foreign, "skipped", error)
        except NewerSchemaVersion as error:
            return self._unwanted(job, self.choices.newer, "skipped", error)
        except CannotDecode as error:
            return SetAside(reason_of(error), job.failures + 1)
        if isinstance(event, Unhandled):
            self.registrations.note_unhandled(event.event_type, self.name, self.choices.unknown)
            unknown = UnknownEventType(f"The consumer {self.name!r} has no handler for {event.event_type!r}.")
            return self._unwanted(job, self.choices.unknown, "unhandled", unknown)
        return event

    def _unwanted(self, job: Job, policy: Policy, counter: str, error: PillarboxError) -> Step:
        """A message that no handler is for."""
        match policy:
            case "raise":
                raise error
            case "set aside":
                return SetAside(reason_of(error), job.failures + 1)
            case "skip":
                self.count(counter, 1)
                if counter == "skipped":
                    _log.warning("consumer %s: skipped a message of %r: %s", self.name, job.incoming.source, error)
                return Finish()

    def _one_by_one(self, events: Sequence[Todo], database: InboxDatabase) -> list[Settled]:
        """In order; what is behind an event of its key that is not finished stays untouched."""
        steps: list[Settled] = []
        stuck: set[int] = set()
        nobody = False
        for number, (job, event) in enumerate(events):
            if nobody or id(job.lane) in stuck or (number and self.stopping()):
                steps.append((job, Untouched()))
                continue
            step = self._judge(job, event, attempt(database, self.name, event.event_id, event.calls))
            steps.append((job, step))
            if not isinstance(step, Finish | Discard):
                nobody = isinstance(step, WaitOut) and step.everybody
                job.alone = not nobody
                stuck.add(id(job.lane))
        return steps

    def _batch(self, events: Sequence[Todo], database: InboxDatabase) -> list[Settled]:
        results = attempt_batch(database, self.name, [event for _, event in events])
        if isinstance(results, DatabaseAway) and not results.in_handler:
            (job, event), *others = events
            return [(job, self._judge(job, event, results)), *((other, Untouched()) for other, _ in others)]
        if isinstance(results, Failed | DatabaseAway):
            text = "consumer %s: a batch of %d events failed, each is tried alone now: %s"
            _log.warning(text, self.name, len(events), reason_of(results.error))
            self.count("split", 1)
            return self._one_by_one(events, database)
        return [
            (job, self._judge(job, event, results[place]) if place in results else Untouched())
            for place, (job, event) in enumerate(events)
        ]

    def _judge(self, job: Job, event: Prepared, result: Result) -> Step:
        if not isinstance(result, DatabaseAway):
            self.outages = job.breaks = 0
        match result:
            case Applied():
                self.count("applied", 1)
                faultpoints.reach("consumer.after-commit")
                return Finish()
            case Duplicate():
                self.count("duplicates", 1)
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

    def _failed(self, job: Job, event: Prepared, error: Exception, *, final: bool) -> Step:
        verdict = verdict_on(error, self.choices.on_error)
        step: RetryLater | PutBack | SetAside | Discard = after_failure(
            error, job.failures + 1, self.choices.retry, self.chance(), verdict=verdict, final=final
        )
        if isinstance(step, RetryLater) and self.choices.retry_in == "broker":
            step = PutBack(step.seconds, reason_of(error), step.attempts)
        match step:
            case SetAside():
                _log.error("consumer %s: %s failed %d times", self.name, event, step.attempts, exc_info=error)
            case Discard():
                self.count("discarded", 1)
                _log.warning("consumer %s: %s is dropped: %s", self.name, event, step.reason)
            case RetryLater() | PutBack():
                text = "consumer %s: %s failed (attempt %d), again in %.1f s"
                _log.warning(text, self.name, event, step.attempts, step.seconds, exc_info=error)
        return step
