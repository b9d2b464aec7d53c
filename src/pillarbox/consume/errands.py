"""What only the source can do for an event: its way to the dead letters, confirmed before it is acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import PillarboxError
from ..ports import Source
from . import plan
from .board import Board, Errand
from .stats import ConsumerStats

_log = logging.getLogger("pillarbox.consume")


@dataclass(slots=True)
class Errands:
    """Run by the polling thread. What fails is tried again later, while its key waits and the others go on."""

    name: str
    board: Board
    source: Source
    stats: ConsumerStats
    chance: Callable[[], float]

    def run(self) -> None:
        """Do all that is due, each once."""
        for errand in self.board.errands():
            if self.source.holds(errand.job.incoming):
                self._run(errand)
            else:
                self.board.did(errand, gone=True)

    def _run(self, errand: Errand) -> None:
        incoming, what = errand.job.incoming, errand.what
        try:
            self.source.set_aside(incoming, what.reason, what.attempts)
        except PillarboxError as error:
            self.stats.broker_away += 1
            _log.warning("consumer %s: the dead-letter destination did not take it: %s", self.name, error)
            self.board.postpone(errand, plan.OUTAGE_RETRY.delay(errand.tries + 1, self.chance()))
            return
        _log.error("consumer %s: a message of %r is set aside: %s", self.name, incoming.source, what.reason)
        self.board.did(errand)
