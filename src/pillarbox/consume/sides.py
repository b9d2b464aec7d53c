"""The two kinds of engine a consumer can have: handlers in threads, or in one event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Final, Protocol, TypeVar

from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from ..errors import BadConsumer
from .board import Board
from .choices import Choices
from .database import InboxDatabase
from .looped import AsyncInboxDatabase, LoopTasks, LoopThread, with_own_pool
from .performing import Performer
from .watch import HandlerWatch
from .workers import OwnThread, Threads, Workers

_log = logging.getLogger("pillarbox.consume")

CLOSE_SECONDS: Final = 3.0
"""How long connections may take to close; a handler that blocks the loop would let them wait for ever."""

T = TypeVar("T")


class Side(Protocol):
    """The consumer's database for one run."""

    one_thread: bool
    """Handlers run in the polling thread."""

    def check(self) -> None:
        """Raise TablesMissing (PB-006), or why the database cannot be reached (PB-004, PB-008)."""
        ...

    def workers(self, name: str, board: Board, performer: Performer, watch: HandlerWatch) -> Workers:
        """Those who will do the work, not started."""
        ...

    def use(self, work: Callable[[InboxDatabase], T]) -> T:
        """Do something with a database outside of any workers."""
        ...

    def close(self) -> None:
        """Give back what was opened."""
        ...


def make_side(engine: Engine | AsyncEngine, choices: Choices, name: str, *, own: bool) -> Side:
    """The side of an engine; one that is the consumer's ``own`` is disposed of at the end."""
    if isinstance(engine, AsyncEngine):
        return LoopSide(engine, choices, name)
    return ThreadSide(engine, choices, own=own)


class ThreadSide:
    """A synchronous engine."""

    def __init__(self, engine: Engine, choices: Choices, *, own: bool) -> None:
        check_pool(engine, choices.workers)
        self.one_thread = choices.workers == 1
        self._engine = engine
        self._choices = choices
        self._own = own

    def check(self) -> None:
        self.use(InboxDatabase.check)

    def use(self, work: Callable[[InboxDatabase], T]) -> T:
        with closing(InboxDatabase(self._engine)) as database:
            return work(database)

    def workers(self, name: str, board: Board, performer: Performer, watch: HandlerWatch) -> Workers:
        if self.one_thread:
            watched = watch if self._choices.handler_timeout else None
            return OwnThread(board, performer, InboxDatabase(self._engine, watched))
        return Threads(board, performer, self._engine, watch, number=self._choices.workers, name=name)

    def close(self) -> None:
        if self._own:
            self._engine.dispose()


class LoopSide:
    """An asynchronous engine, with a pool that belongs to the consumer's loop."""

    one_thread = False

    def __init__(self, engine: AsyncEngine, choices: Choices, name: str) -> None:
        check_pool(engine.sync_engine, choices.workers)
        self._engine = with_own_pool(engine)
        self._choices = choices
        self._thread = LoopThread(name)

    def check(self) -> None:
        self.use(InboxDatabase.check)

    def use(self, work: Callable[[InboxDatabase], T]) -> T:
        def with_database() -> T:
            with closing(AsyncInboxDatabase(self._engine)) as database:
                return work(database)

        return self._thread.spawn(with_database)

    def workers(self, name: str, board: Board, performer: Performer, watch: HandlerWatch) -> Workers:
        return LoopTasks(board, performer, self._engine, watch, self._thread, number=self._choices.workers)

    def close(self) -> None:
        try:
            self._thread.spawn(self._engine.sync_engine.dispose, seconds=CLOSE_SECONDS)
        except TimeoutError:
            _log.error("database connections are left open: the event loop is blocked by a handler")
        finally:
            self._thread.close()


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
