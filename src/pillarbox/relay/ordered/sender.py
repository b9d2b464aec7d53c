"""The thread that speaks to the broker, while the relay's own reads the next round and settles the last one."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...errors import BrokerUnavailable
from ...ports import BeginsInOrder, Outcome, Publisher, Unavailable, UnderWay
from .rounds import Round

DEPTH: Final = 2
"""Rounds handed over at once: one on its way, one that follows without a pause."""

_LOOK_EVERY: Final = 0.002
"""Seconds between looks for the next round, which may be handed over while the one before waits for its answers."""

_LONG: Final = 1.0


class Finished(NamedTuple):
    """A round with one outcome for each event that it sends."""

    round: Round
    outcomes: Sequence[Outcome]


class Sender:
    """Publishes rounds one after the other, in the order in which they were handed over.

    A publisher that can begin a round before the last one has ended gets it then: no two under way share a stream,
    since no two share a partition.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._todo: queue.SimpleQueue[Round | None] = queue.SimpleQueue()
        self._finished: deque[Finished] = deque()
        self._news = threading.Condition()
        self._error: BaseException | None = None
        self._begun: deque[tuple[Round, UnderWay]] = deque()
        self._ahead = publisher if isinstance(publisher, BeginsInOrder) else None
        self._at_once = 1 if self._ahead is None else DEPTH
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="pillarbox-sender", daemon=True)
        self.under_way = 0
        self.bytes_under_way = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def has_room(self) -> bool:
        """True when another round may be handed over."""
        return self.under_way < DEPTH

    def submit(self, round_: Round) -> None:
        """Hand a round over; it comes back through :meth:`take`."""
        self.under_way += 1
        self.bytes_under_way += round_.bytes
        self._todo.put(round_)

    def take(self, timeout: float) -> list[Finished]:
        """What has finished; waits up to ``timeout`` seconds for the first. Then raises what broke the thread."""
        with self._news:
            if not self._finished and self._error is None and timeout > 0:
                self._news.wait(timeout)
            if self._error is not None and not self._finished:
                raise self._error
            done = list(self._finished)
            self._finished.clear()
        for one in done:
            self.under_way -= 1
            self.bytes_under_way -= one.round.bytes
        return done

    def wake(self) -> None:
        """End a :meth:`take` that waits."""
        with self._news:
            self._news.notify_all()

    def begin_no_more(self) -> None:
        """What was handed over and is not on its way yet stays here: the partitions are about to be given up."""
        self._ending = True

    def stop(self, seconds: float) -> None:
        """End the thread; what it is publishing is waited for at most so long."""
        self.begin_no_more()
        self._todo.put(None)
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while self._begin_what_is_there():
                self._await_first()
        except BaseException as error:  # noqa: BLE001 - raised again in the relay's own thread, by take()
            with self._news:
                self._error = error
                self._news.notify_all()

    def _begin_what_is_there(self) -> bool:
        """Hand over all that may go now; waits for a round where none is begun. False: that was all, for ever."""
        while not self._ending and len(self._begun) < self._at_once:
            try:
                round_ = self._todo.get(block=not self._begun)
            except queue.Empty:
                break
            if not self._ending and round_ is not None:
                self._begun.append((round_, self._begin(round_)))
        return bool(self._begun)

    def _begin(self, round_: Round) -> UnderWay:
        messages = [delivery.message for delivery in round_.send]
        if self._ahead is not None:
            return self._ahead.begin_in_order(messages)
        return lambda seconds: self._publisher.publish_in_order(messages)

    def _await_first(self) -> None:
        round_, wait = self._begun[0]
        may_begin_another = len(self._begun) < self._at_once and not self._ending
        try:
            outcomes = wait(_LOOK_EVERY if may_begin_another else _LONG)
        except BrokerUnavailable as error:
            outcomes = [Unavailable(error.message)] * len(round_.send)
        if outcomes is not None:
            self._begun.popleft()
            with self._news:
                self._finished.append(Finished(round_, outcomes))
                self._news.notify_all()
