"""Puts a consumer's parts together for one run."""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock
from ..ports import Source
from .accounts import Accounts
from .board import Board
from .choices import Choices
from .desk import Desk
from .errands import Errands
from .performing import Performer
from .registrations import Registrations
from .runner import Runner
from .sides import Side
from .stats import ConsumerStats
from .stopping import StopFlag
from .watch import HandlerWatch


def assemble(
    name: str,
    choices: Choices,
    *,
    source: Source,
    side: Side,
    registrations: Registrations,
    stats: ConsumerStats,
    stop: StopFlag,
    pause: StopFlag,
    clock: Clock,
    chance: Callable[[], float],
) -> Runner:
    """A runner whose source is open and whose database was checked."""
    many = choices.in_hand
    board = Board(Desk(many, choices.ahead_bytes), stats, clock, stop, pause, limit=choices.batch, many=many)
    holds = source.holds if side.one_thread else lambda _: True  # a source is used by one thread only
    performer = Performer(name, registrations, choices, chance, holds, board.count, lambda: board.closed)
    watch = HandlerWatch(name, choices.handler_timeout, lambda: board.count("timeouts", 1))
    return Runner(
        name=name,
        source=source,
        board=board,
        workers=side.workers(name, board, performer, watch),
        watch=watch,
        accounts=Accounts(name, board, source, stats, clock, many),
        errands=Errands(name, board, source, stats, chance),
        stop=stop,
        drain=choices.drain,
        clock=clock,
    )
