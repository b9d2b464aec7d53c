"""Puts a consumer's parts together for one run."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.engine import Engine

from ..clock import Clock
from ..errors import BadConsumer
from ..ports import Source
from .accounts import Accounts
from .board import Board
from .choices import Choices
from .database import InboxDatabase
from .desk import Desk
from .errands import Errands
from .performing import Performer
from .registrations import Registrations
from .runner import Runner
from .stats import ConsumerStats
from .stopping import StopFlag
from .watch import HandlerWatch
from .workers import OwnThread, Threads, Workers


def assemble(
    name: str,
    choices: Choices,
    *,
    source: Source,
    engine: Engine,
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
    alone = choices.workers == 1
    holds = source.holds if alone else lambda _: True  # a source is used by one thread only
    performer = Performer(name, registrations, choices, chance, holds, board.count, lambda: board.closed)
    watch = HandlerWatch(name, choices.handler_timeout, lambda: board.count("timeouts", 1))
    workers: Workers
    if alone:
        workers = OwnThread(board, performer, InboxDatabase(engine, watch if choices.handler_timeout else None))
    else:
        workers = Threads(board, performer, engine, watch, number=choices.workers, name=name)
    return Runner(
        name=name,
        source=source,
        board=board,
        workers=workers,
        watch=watch,
        accounts=Accounts(name, board, source, stats, clock, many),
        errands=Errands(name, board, source, stats, chance),
        stop=stop,
        drain=choices.drain,
        clock=clock,
    )


def check_pool(engine: Engine, connections: int) -> None:
    """Raise BadConsumer (PB-041) for a pool that would keep workers waiting for connections."""
    size, more = getattr(engine.pool, "size", None), getattr(engine.pool, "_max_overflow", None)
    if not callable(size) or not isinstance(more, int) or more < 0 or size() == 0:
        return  # without a limit
    if size() + more < connections:
        raise BadConsumer(
            f"{connections} workers need a connection each; the engine's pool has {size() + more}.",
            fix=f"Give the engine pool_size={connections}, or fewer workers.",
        )
