"""The thread that speaks to the broker, while the relay's own reads the next round and settles the last one."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...errors import BrokerUnavailable
from ...ports import Outcome, Publisher, Unavailable
from .rounds import Round

DEPTH: Final = 2
"""Rounds handed over at once: one on its way, one that follows without a pause."""


class Finished(NamedTuple):
    """A round with one outcome for each event that it sends."""

    round: Round
    outcomes: Sequence[Outcome]


class Sender:
    """Publishes rounds one after the other, in the order in which they were handed over."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._todo: queue.SimpleQueue[Round | None] = queue.SimpleQueue()
        self._finished: deque[Finished] = deque()
        self._news = threading.Condition()
        self._error: BaseException | None = None
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
        """What has finished; waits up to ``timeout`` seconds for the first. Raises what broke the thread."""
        with self._news:
            if not self._finished and self._error is None and timeout > 0:
                self._news.wait(timeout)
            if self._error is not None:
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

    def stop(self, seconds: float) -> None:
        """End the thread; what it is publishing is waited for at most so long."""
        self._todo.put(None)
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while (round_ := self._todo.get()) is not None:
            try:
                finished = Finished(round_, self._publish(round_))
            except BaseException as error:  # noqa: BLE001 - raised again in the relay's own thread, by take()
                with self._news:
                    self._error = error
                    self._news.notify_all()
                return
            with self._news:
                self._finished.append(finished)
                self._news.notify_all()

    def _publish(self, round_: Round) -> Sequence[Outcome]:
        try:
            return self._publisher.publish_in_order([delivery.message for delivery in round_.send])
        except BrokerUnavailable as error:
            return [Unavailable(error.message)] * len(round_.send)
