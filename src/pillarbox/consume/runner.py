"""The consumer's loop: poll, put on the board, let workers work, acknowledge. Only this thread speaks to the source.

::

    source ──poll──▶ board ──take──▶ workers: mark, handlers, commit
      ▲   ▲            │  ◀──settle──┘
      │   └─errands────┤   set aside what is given up
      └──accounts──────┘   acknowledge what is finished, at a pace
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from ..clock import Clock
from ..ports import Incoming, Source
from .accounts import Accounts
from .board import Board
from .errands import Errands
from .signals import DrainInterrupted
from .stopping import StopFlag
from .watch import HandlerWatch
from .workers import Workers

_log = logging.getLogger("pillarbox.consume")

POLL_SECONDS: Final = 0.1  # also the longest a stop goes unnoticed
BUSY_SECONDS: Final = 0.01  # while workers have something that may be finished at any moment
SERVE_EVERY_SECONDS: Final = 5.0  # Kafka forgets a consumer that does not poll, however busy it is
SWEEP_EVERY_SECONDS: Final = 0.05


@dataclass(slots=True)
class Runner:
    """Runs until ``stop`` is set. Raises only what no waiting can cure; outages are waited out."""

    name: str
    source: Source
    board: Board
    workers: Workers
    watch: HandlerWatch
    accounts: Accounts
    errands: Errands
    stop: StopFlag
    drain: float
    clock: Clock
    _served: float = 0.0
    _swept: float = 0.0

    def run(self) -> None:
        """Consume until told to stop; what is finished by then is acknowledged."""
        with self.watch.running():
            self._run()

    def _run(self) -> None:
        self.workers.start()
        try:
            while not self.stop.is_set():
                self._fetch()
                self.workers.turn(self._between)
                self._between()
            self._drain()
        finally:
            self.workers.close()
            self.accounts.settle()

    def _fetch(self) -> None:
        found = self._poll(0.0, room) if (room := self.board.room) else []
        idle = not found and self.board.resting
        self.accounts.keep(quiet=not found, idle=idle)
        if found:
            self.board.put(found)
        elif idle:
            self.board.put(self._poll(self.board.rest(POLL_SECONDS), self.board.room))
        elif room:
            self.board.put(self._poll(BUSY_SECONDS, room))
        else:
            self.board.wait(POLL_SECONDS)
            self._keep_alive()

    def _poll(self, timeout: float, limit: int) -> list[Incoming]:
        found = self.source.poll(timeout, limit)
        self._served = self.clock.monotonic()
        if self._served - self._swept >= SWEEP_EVERY_SECONDS:
            self._swept = self._served
            self.board.sweep(self.source.holds)
        return found

    def _between(self) -> bool:
        """After each transaction of the polling thread, or once a turn; False when it is time to stop."""
        self.board.raise_if_broken()
        if self.stop.is_set():
            return False  # the drain does the errands that are left
        self.errands.run()
        self.accounts.keep()
        self._keep_alive()
        return True

    def _keep_alive(self) -> None:
        if self.clock.monotonic() - self._served >= SERVE_EVERY_SECONDS:
            self.accounts.settle()  # the poll may give partitions away, and with them the right to commit
            self._poll(0.0, 0)

    def _drain(self) -> None:
        """Let workers finish what they have begun; DrainInterrupted when that takes too long."""
        self.board.close()
        until = self.clock.monotonic() + self.drain
        while True:
            self.board.raise_if_broken()
            self.errands.run()
            if self.board.working == 0:
                return
            if self.clock.monotonic() >= until:
                self.workers.interrupt()
                raise DrainInterrupted(f"A handler of the consumer {self.name!r} does not end.")
            self.board.wait(BUSY_SECONDS)
            self.accounts.keep()
            self._keep_alive()
