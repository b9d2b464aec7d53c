"""Who is next: lanes of events that must keep their order, due times, and a bound on what is in hand. Pure.

Time comes in as an argument, nothing here waits, no thread and no broker is known. Events of one source and key make a
lane: its first ones are handed out, the next not before these are settled. An event without key is a lane of its own.

::

    add ──▶ queued ──take──▶ out ──done──▶ gone
              ▲               │
              └──── back ─────┘   at once, or not before it is due: its lane waits with it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ..ports import Incoming

OVERHEAD = 500
"""Bytes that a message in hand takes besides its body, roughly."""


@dataclass(slots=True, eq=False)
class Lane:
    """Events of one key in the order of their arrival; ``out`` of them are handed out."""

    name: tuple[str, str] | None
    jobs: deque[Job] = field(default_factory=deque)
    out: int = 0
    queued: bool = False  # among those that are ready, or waiting for a due time


@dataclass(slots=True, eq=False)
class Job:
    """One message in hand, and what happened to it so far.

    ``failures`` were charged to the event, ``breaks`` are losses of the database by its handlers in a row, ``alone``
    says that it failed a batch and gets a transaction of its own from now on. ``due`` 0 means at once. ``out``: handed
    out, and not settled.
    """

    incoming: Incoming
    number: int
    lane: Lane
    failures: int = 0
    outages: int = 0
    breaks: int = 0
    alone: bool = False
    due: float = 0.0
    out: bool = False

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return len(self.incoming.body) + OVERHEAD


class Desk:
    """Holds at most ``most`` messages, and takes no more in once they have ``most_bytes``.

    >>> desk = Desk(most=100, most_bytes=1 << 20)
    >>> for key in "aab":
    ...     _ = desk.add(Incoming("orders", {}, b"", key, None, False))
    >>> first = desk.take(now=0.0, limit=1)
    >>> [job.incoming.key for job in first + desk.take(0.0, 1) + desk.take(0.0, 1)]  # the second "a" has to wait
    ['a', 'b']
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._ready: deque[Lane] = deque()
        self._waiting: list[tuple[float, int, Lane]] = []
        self._numbers = 0
        self._in_hand = 0
        self._bytes = 0
        self._out = 0

    def __len__(self) -> int:
        return self._in_hand

    @property
    def out(self) -> int:
        """How many are handed out and not settled."""
        return self._out

    @property
    def room(self) -> int:
        """How many more may be fetched."""
        return 0 if self._bytes >= self._most_bytes else max(0, self._most - self._in_hand)

    def add(self, incoming: Incoming) -> Job:
        """Queue a message behind those of its source and key."""
        lane = self._lane(incoming)
        job = Job(incoming, self._numbers, lane, failures=incoming.attempts, alone=incoming.attempts > 0)
        self._numbers += 1
        self._in_hand += 1
        self._bytes += job.size
        lane.jobs.append(job)
        self._offer(lane)
        return job

    def take(self, now: float, limit: int) -> list[Job]:
        """Hand out up to ``limit`` messages that may go in one transaction, in the order of their arrival; or none."""
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heappop(self._waiting)[2])
        if limit == 1:
            return self._take_one()
        taken: list[Job] = []
        later: list[Lane] = []
        while self._ready and len(taken) < limit:
            lane = self._ready.popleft()
            if lane.jobs[0].alone:
                if not taken:
                    return self._hand_out(lane, [lane.jobs[0]])
                later.append(lane)
                continue
            taken += self._hand_out(lane, _together(lane, limit - len(taken)))
        self._ready.extendleft(reversed(later))
        taken.sort(key=_number)
        return taken

    def done(self, job: Job) -> None:
        """It is finished, and leaves."""
        self._remove(job)
        self._settled(job)

    def back(self, job: Job, due: float = 0.0) -> None:
        """It is not finished: it stays where it was in its lane, which goes on at ``due``."""
        job.due = due
        self._settled(job)

    def sweep(self, holds: Callable[[Incoming], bool]) -> int:
        """Drop what is queued and not held any more; returns how many. What is out is left alone."""
        resting = [*self._ready, *(lane for _, _, lane in sorted(self._waiting, key=_place))]
        busy = [lane for lane in self._lanes.values() if lane.out]
        dropped = 0
        for lane in [*resting, *busy]:
            for job in [job for job in lane.jobs if not job.out and not holds(job.incoming)]:
                self._remove(job)
                dropped += 1
        self._ready.clear()
        self._waiting.clear()
        for lane in resting:
            lane.queued = False
            if self._keep(lane):
                self._offer(lane)
        return dropped

    def until_due(self, now: float) -> float | None:
        """Seconds until something can be taken: 0 for now, None while all lanes are out or empty."""
        if self._ready:
            return 0.0
        return max(0.0, self._waiting[0][0] - now) if self._waiting else None

    # ------------------------------------------------------------------------------------------------------------------

    def _lane(self, incoming: Incoming) -> Lane:
        if incoming.key is None:
            return Lane(None)
        name = (incoming.source, incoming.key)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        return lane

    def _take_one(self) -> list[Job]:
        if not self._ready:
            return []
        lane = self._ready.popleft()
        return self._hand_out(lane, [lane.jobs[0]])

    def _hand_out(self, lane: Lane, jobs: list[Job]) -> list[Job]:
        lane.queued = False
        lane.out = len(jobs)
        self._out += len(jobs)
        for job in jobs:
            job.out = True
        return jobs

    def _settled(self, job: Job) -> None:
        lane, job.out = job.lane, False
        lane.out -= 1
        self._out -= 1
        if lane.out == 0 and self._keep(lane):
            self._offer(lane)

    def _offer(self, lane: Lane) -> None:
        if lane.queued or lane.out:
            return
        lane.queued = True
        head = lane.jobs[0]
        if head.due > 0.0:
            heappush(self._waiting, (head.due, head.number, lane))
        else:
            self._ready.append(lane)

    def _keep(self, lane: Lane) -> bool:
        """False, and forgotten, when nothing is left of it."""
        if lane.jobs:
            return True
        if lane.name is not None:
            del self._lanes[lane.name]
        return False

    def _remove(self, job: Job) -> None:
        jobs = job.lane.jobs
        if jobs[0] is job:
            jobs.popleft()
        else:
            jobs.remove(job)
        self._in_hand -= 1
        self._bytes -= job.size


def _together(lane: Lane, most: int) -> list[Job]:
    """The first messages of a lane, up to one that has to be alone."""
    found: list[Job] = []
    for job in lane.jobs:
        if job.alone or len(found) == most:
            break
        found.append(job)
    return found


def _number(job: Job) -> int:
    return job.number


def _place(entry: tuple[float, int, Lane]) -> tuple[float, int]:
    return entry[:2]
