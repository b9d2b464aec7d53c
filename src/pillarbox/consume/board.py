"""Where the polling thread and the workers meet: the desk under one lock, what is finished, what the source is to do.

The polling thread puts messages in, and takes out what to acknowledge and what to set aside. Workers take work and
bring back what became of it. Nobody holds the lock while a handler runs or the network is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, assert_never

from .. import faultpoints
from ..clock import Clock
from ..ports import Incoming
from .desk import Desk, Job
from .plan import Discard, Finish, Gone, PutBack, RetryLater, SetAside, Step, Untouched, WaitOut
from .stats import ConsumerStats
from .stopping import StopFlag

Settled = tuple[Job, Step]

ROOM_SHARE: Final = 4
"""A full desk asks for more when this part of it is free again, and not for every single message."""


class Errand(NamedTuple):
    """Something only the source can do, for a job that is not finished before. ``tries`` have failed so far."""

    job: Job
    what: SetAside | PutBack
    tries: int = 0
    due: float = 0.0


class Board:
    """``limit``: the most messages of one transaction; ``many``: finished ones that want to be acknowledged at once.

    From the moment when ``stop`` is set nothing more is handed out; while ``pause`` is set, nothing is handed out and
    nothing fetched.
    """

    def __init__(
        self, desk: Desk, stats: ConsumerStats, clock: Clock, stop: StopFlag, pause: StopFlag, *, limit: int, many: int
    ) -> None:
        self._desk = desk
        self._stop = stop
        self._pause = pause
        self._stats = stats
        self._clock = clock
        self._limit = limit
        self._many = many
        self._most = desk.room
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._attention = threading.Condition(self._lock)
        self._idle = 0
        self._listener: Callable[[], object] | None = None
        self._listening = False
        self._errands: list[Errand] = []
        self._finished: list[Incoming] = []
        self._held_until = 0.0
        self._closed = False
        self._broken: BaseException | None = None

    # The workers' side ------------------------------------------------------------------------------------------------

    def take(self, wait: float = 0.0) -> list[Job]:
        """Work for one transaction; none when there is none for ``wait`` seconds."""
        now = self._clock.monotonic()
        until = now + wait
        with self._lock:
            while True:
                jobs = self._take(now)
                if jobs or now >= until or self.closed:
                    return jobs
                self._idle += 1
                self._work.wait(min(until - now, self._until_work(now)))
                self._idle -= 1
                now = self._clock.monotonic()

    def take_or_listen(self) -> tuple[list[Job], float]:
        """Work, or the seconds until there may be some; news are told to the listener before that."""
        with self._lock:
            now = self._clock.monotonic()
            jobs = self._take(now)
            self._listening = self._listening or not jobs
            return jobs, self._until_work(now)

    def listen(self, listener: Callable[[], object]) -> None:
        """Call ``listener``, which must return at once, when there may be work for somebody who found none."""
        self._listener = listener

    def settle(self, settled: Sequence[Settled]) -> None:
        """Bring back what became of work that was taken, all of one transaction together."""
        with self._lock:
            crowded = self._room() == 0
            for job, step in settled:
                self._settle(job, step)
            self._tell(len(settled))
            news = self._errands or len(self._finished) >= self._many or self._closed
            if news or (crowded and self._room() > 0):
                self._attention.notify()

    def count(self, counter: str, number: int) -> None:
        """Add to one of the counters."""
        with self._lock:
            setattr(self._stats, counter, getattr(self._stats, counter) + number)

    def fail(self, error: BaseException) -> None:
        """A worker ended; the polling thread raises its error."""
        with self._lock:
            self._broken = self._broken or error
            self._closed = True
            self._work.notify_all()
            self._attention.notify_all()

    # The polling thread's side ----------------------------------------------------------------------------------------

    def put(self, messages: Sequence[Incoming]) -> None:
        """What the broker delivered."""
        for _ in messages:
            faultpoints.reach("consumer.received")
        with self._lock:
            self._stats.received += len(messages)
            for incoming in messages:
                self._desk.add(incoming)
            self._tell(len(messages))

    def sweep(self, holds: Callable[[Incoming], bool]) -> None:
        """Drop what waits here and went back to the broker meanwhile."""
        with self._lock:
            self._stats.dropped += self._desk.sweep(holds)

    @property
    def room(self) -> int:
        """How many more messages may be fetched: none while it is nearly full and the workers have enough to do."""
        with self._lock:
            return self._room()

    @property
    def working(self) -> int:
        """How many messages the workers have."""
        return self._desk.out - len(self._errands)

    @property
    def resting(self) -> bool:
        """Nothing is being worked on, and nothing can be."""
        with self._lock:
            return self.working == 0 and self._until_work(self._clock.monotonic()) > 0.0

    def rest(self, most: float) -> float:
        """Seconds until there is something to do again, ``most`` at most."""
        with self._lock:
            now = self._clock.monotonic()
            errand = min((errand.due for errand in self._errands), default=now + most)
            return max(0.0, min(most, self._until_work(now), errand - now))

    def wait(self, seconds: float) -> None:
        """Until a worker has something for the polling thread."""
        with self._lock:
            if self._broken is None and not self._errands and len(self._finished) < self._many:
                self._attention.wait(seconds)

    def finished(self) -> list[Incoming]:
        """What is to be acknowledged, once."""
        with self._lock:
            found, self._finished = self._finished, []
        return found

    def errands(self) -> list[Errand]:
        """What the source is to do now. Those that fail are brought back by :meth:`postpone`."""
        if not self._errands:
            return []
        now = self._clock.monotonic()
        with self._lock:
            due = [errand for errand in self._errands if errand.due <= now]
            self._errands = [errand for errand in self._errands if errand.due > now]
        return due

    def postpone(self, errand: Errand, seconds: float) -> None:
        """It did not succeed; its key waits."""
        with self._lock:
            self._errands.append(errand._replace(tries=errand.tries + 1, due=self._clock.monotonic() + seconds))

    def leave(self, errands: Sequence[Errand]) -> None:
        """There was no time for these."""
        with self._lock:
            self._errands[:0] = errands

    def did(self, errand: Errand, *, gone: bool = False) -> None:
        """It is where it should go, or the broker took it back meanwhile."""
        with self._lock:
            if gone:
                self._stats.dropped += 1
            else:
                if isinstance(errand.what, SetAside):
                    self._stats.dead += 1
                else:
                    self._stats.retried += 1
                self._finished.append(errand.job.incoming)
            self._desk.done(errand.job)
            self._tell(1)

    def close(self) -> None:
        """Hand nothing out any more."""
        with self._lock:
            self._closed = True
            self._work.notify_all()

    @property
    def closed(self) -> bool:
        """True when workers should end."""
        return self._closed or self._stop.is_set()

    def raise_if_broken(self) -> None:
        """Raise the error that ended a worker."""
        if self._broken is not None:
            raise self._broken

    # ------------------------------------------------------------------------------------------------------------------

    def _tell(self, number: int) -> None:
        if self._idle:
            self._work.notify(number)
        if self._listening and self._listener is not None:
            self._listening = False
            self._listener()

    def _take(self, now: float) -> list[Job]:
        if self.closed or self._pause.is_set() or now < self._held_until:
            return []
        return self._desk.take(now, self._limit)

    def _room(self) -> int:
        room = 0 if self._pause.is_set() else self._desk.room
        enough = room * ROOM_SHARE < self._most and self._desk.until_due(self._clock.monotonic()) == 0.0
        return 0 if enough else room

    def _until_work(self, now: float) -> float:
        """Seconds; infinite while nothing but news can make work."""
        if self._pause.is_set():
            return float("inf")
        due = self._desk.until_due(now)
        return float("inf") if due is None else max(due, self._held_until - now)

    def _settle(self, job: Job, step: Step) -> None:
        now = self._clock.monotonic()
        match step:
            case Finish() | Discard():
                self._finished.append(job.incoming)
                self._desk.done(job)
            case RetryLater(seconds, attempts):
                job.failures = attempts
                self._stats.retried += 1
                self._desk.back(job, now + seconds)
            case WaitOut(seconds, everybody):
                self._stats.database_away += 1
                self._desk.back(job, 0.0 if everybody else now + seconds)
                if everybody:
                    self._held_until = now + seconds
            case SetAside() | PutBack():
                self._errands.append(Errand(job, step))
            case Untouched():
                self._desk.back(job)
            case Gone():
                self._stats.dropped += 1
                self._desk.done(job)
            case _:
                assert_never(step)
