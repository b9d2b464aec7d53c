"""What only the source can do for an event: its way to the dead letters, or to come again later."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..errors import PillarboxError
from ..ports import Source
from . import plan
from .board import Board, Errand
from .plan import PutBack, SetAside
from .stats import ConsumerStats

_log = logging.getLogger("pillarbox.consume")

TURN_SECONDS: Final = 1.0
"""After that nothing more is begun: a silent broker costs each errand its deadline, and meanwhile nobody polls,
acknowledges or notices a stop."""


@dataclass(slots=True)
class Errands:
    """Run by the polling thread. Nothing is acknowledged before the broker confirmed its copy.

    What fails is tried again later, while its key waits and the others go on.
    """

    name: str
    board: Board
    source: Source
    stats: ConsumerStats
    chance: Callable[[], float]

    def run(self) -> None:
        """Do what is due, each once; what a slow broker leaves no time for stays for the next turn."""
        due = self.board.errands()
        until = time.monotonic() + TURN_SECONDS
        for number, errand in enumerate(due, start=1):
            if self.source.holds(errand.job.incoming):
                self._run(errand)
            else:
                self.board.did(errand, gone=True)
            if time.monotonic() >= until:
                self.board.leave(due[number:])
                return

    def _run(self, errand: Errand) -> None:
        incoming, what = errand.job.incoming, errand.what
        try:
            if isinstance(what, PutBack):
                self.source.put_back(incoming, what.seconds, what.reason, what.attempts)
            else:
                self.source.set_aside(incoming, what.reason, what.attempts)
        except PillarboxError as error:
            self.stats.broker_away += 1
            where = "retry" if isinstance(what, PutBack) else "dead-letter"
            _log.warning("consumer %s: the %s destination did not take it: %s", self.name, where, error)
            self.board.postpone(errand, plan.OUTAGE_RETRY.delay(errand.tries + 1, self.chance()))
            return
        if isinstance(what, SetAside):
            _log.error("consumer %s: a message of %r is set aside: %s", self.name, incoming.source, what.reason)
        self.board.did(errand)
