"""Acknowledging at a pace: what is finished is told to the broker now and then, and not message by message."""

from __future__ import annotations

import logging
from typing import Final

from .. import faultpoints
from ..clock import Clock
from ..errors import BrokerUnavailable
from ..ports import Incoming, Source
from .board import Board
from .stats import ConsumerStats

_log = logging.getLogger("pillarbox.consume")

AFTER_SECONDS: Final = 1.0
"""Bounds what a crash delivers again when there is always more to do."""

QUIET_SECONDS: Final = 0.05
"""Where nothing comes any more, the broker may be waiting for acknowledgements before it sends more (prefetch)."""


class Accounts:
    """``many``: so many finished messages are acknowledged at once."""

    def __init__(self, name: str, board: Board, source: Source, stats: ConsumerStats, clock: Clock, many: int) -> None:
        self._name = name
        self._board = board
        self._source = source
        self._stats = stats
        self._clock = clock
        self._many = many
        self._open: list[Incoming] = []
        self._since = 0.0

    @property
    def open(self) -> int:
        """How many are finished and not acknowledged."""
        return len(self._open)

    def keep(self, *, quiet: bool = False, idle: bool = False) -> None:
        """Acknowledge when it is time: there are many, it is long ago, nothing comes, or there is nothing to do."""
        if not self._collect():
            return
        age = self._clock.monotonic() - self._since
        if idle or len(self._open) >= self._many or age >= AFTER_SECONDS or (quiet and age >= QUIET_SECONDS):
            self.settle()

    def settle(self) -> None:
        """Acknowledge everything that is finished, now."""
        if not self._collect():
            return
        done, self._open = self._open, []
        try:
            self._source.acknowledge(done)
        except BrokerUnavailable as error:
            # Not lost: they come again, and the inbox knows them.
            self._stats.broker_away += 1
            _log.warning("consumer %s: %d messages could not be acknowledged: %s", self._name, len(done), error)
            return
        self._stats.acknowledged += len(done)
        faultpoints.reach("consumer.after-ack")

    def _collect(self) -> bool:
        if more := self._board.finished():
            if not self._open:
                self._since = self._clock.monotonic()
            self._open += more
        return bool(self._open)
