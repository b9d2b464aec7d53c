"""Async handlers: one thread with an event loop, some tasks in it, one AsyncSession per transaction.

The same code marks, calls and commits as for threads. It runs in a greenlet, as SQLAlchemy runs its own synchronous
core under an AsyncSession: where it would wait for the database or a handler, the loop goes on with other tasks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from sqlalchemy.util import await_only, greenlet_spawn

from ..errors import HandlerTimedOut
from .board import Board
from .database import InboxDatabase
from .handlers import Handler
from .performing import Performer
from .received import Received
from .watch import HandlerInterrupted, HandlerWatch
from .workers import JOIN_SECONDS, WAIT_SECONDS

_log = logging.getLogger("pillarbox.consume")

CHECK_SECONDS: Final = 60.0
"""For the first look at the database, which has time-outs of its own."""

T = TypeVar("T")


class LoopThread:
    """A daemon thread that runs an event loop until it is closed."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._main, name=f"pillarbox-loop-{name}", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def spawn(self, function: Callable[..., T], *arguments: Any, seconds: float = CHECK_SECONDS) -> T:
        """Run synchronous code that uses an async driver, and wait for it; TimeoutError after ``seconds``."""
        return self.submit(greenlet_spawn(function, *arguments)).result(seconds)

    def close(self) -> None:
        """Cancel what still runs, and end the thread; a coroutine that blocks the loop is left behind with it."""
        self._closing = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(JOIN_SECONDS)

    def _main(self) -> None:
        try:
            self._run()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.wait(left, timeout=JOIN_SECONDS / 2))
        finally:
            self.loop.close()

    def _run(self) -> None:
        while not self._closing:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio lets them end the loop, too: all other tasks would stand still, and nobody would know.
                _log.error("a task in the consumer's event loop raised %r", error)


def with_own_pool(engine: AsyncEngine) -> AsyncEngine:
    """The same engine, its listeners and options included, with a pool of its own.

    A pooled connection of an async driver belongs to the event loop that opened it, and the application's is another.
    """
    sync = engine.sync_engine
    own = Engine(
        sync.pool.recreate(),
        sync.dialect,
        sync.url,
        execution_options=dict(sync.get_execution_options()),
        echo=sync.echo,
    )
    own.dispatch = own.dispatch._join(sync.dispatch)  # as Engine.execution_options() does
    return AsyncEngine(own)


class AsyncInboxDatabase(InboxDatabase):
    """The same connection and transaction; handlers are given its asynchronous face."""

    def __init__(self, engine: AsyncEngine, watch: HandlerWatch | None = None) -> None:
        super().__init__(engine.sync_engine, watch)
        self._async_engine = engine
        self._face: tuple[AsyncConnection, AsyncSession] | None = None

    def _make_session(self, connection: Connection) -> Session:
        face = AsyncConnection(self._async_engine, connection)
        session = AsyncSession(bind=face, close_resets_only=False)
        self._face = (face, session)
        return session.sync_session

    def call(self, handler: Handler, events: Sequence[Received[Any]], _session: Session) -> None:
        """Run an async handler to its end, in a task of its own that can be cancelled."""
        assert self._face is not None, "begin() comes first"
        connection, session = self._face
        interrupt = TaskInterrupt(asyncio.get_running_loop())
        work: Any = handler.call(events, session, lambda: connection)
        interrupt.task = asyncio.ensure_future(work)
        if self._watch is None:
            interrupt.wait()
            return
        try:
            self._watch.run(handler.name, interrupt.wait, interrupt)
        except HandlerTimedOut:
            self.distrust()
            raise


class TaskInterrupt:
    """Cancels the task of one handler."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.task: asyncio.Future[Any] | None = None
        self._fired = False

    def wait(self) -> None:
        """Until the handler has ended; HandlerInterrupted when it was cancelled from here."""
        assert self.task is not None
        try:
            await_only(self.task)
        except asyncio.CancelledError as error:
            if self._fired:
                raise HandlerInterrupted from None
            waiting = asyncio.current_task(self._loop)
            if waiting is not None and waiting.cancelling():
                raise
            # Something that it awaited was cancelled: that is the event's failure, and not the consumer's end.
            raise RuntimeError("The handler was cancelled from within, by what it awaited.") from error

    def fire(self) -> None:
        assert self.task is not None
        self._fired = True
        self._loop.call_soon_threadsafe(self.task.cancel)

    def retract(self) -> None:
        """Cancelling a task that has ended does nothing."""

    def stack(self) -> str:
        """Where the handler waits."""
        frames: list[traceback.FrameSummary] = []
        awaited = self.task.get_coro() if isinstance(self.task, asyncio.Task) else None
        while awaited is not None and (frame := getattr(awaited, "cr_frame", None)) is not None:
            frames += traceback.extract_stack(frame, limit=1)
            awaited = getattr(awaited, "cr_await", None)
        return "".join(traceback.format_list(frames)).rstrip() or "(it has ended)"


class LoopTasks:
    """``number`` tasks that take work from the board."""

    def __init__(
        self,
        board: Board,
        performer: Performer,
        engine: AsyncEngine,
        watch: HandlerWatch,
        thread: LoopThread,
        *,
        number: int,
    ) -> None:
        self._board = board
        self._performer = performer
        self._engine = engine
        self._watch = watch
        self._thread = thread
        self._number = number
        self._news = asyncio.Event()
        self._tasks: list[Future[None]] = []

    def start(self) -> None:
        """Start all tasks."""
        self._board.listen(lambda: self._thread.loop.call_soon_threadsafe(self._news.set))
        self._tasks = [self._thread.submit(self._main()) for _ in range(self._number)]

    def turn(self, between: Callable[[], bool]) -> None:
        """They work by themselves."""

    def interrupt(self) -> None:
        """Cancel the handlers that still run."""
        self._watch.interrupt_all()

    def close(self) -> None:
        """Wait a moment for the tasks, and give up those whose handler does not let go."""
        self._board.close()
        self._thread.loop.call_soon_threadsafe(self._news.set)
        gathered = self._thread.submit(self._gather())
        try:
            gathered.result(JOIN_SECONDS)
        except TimeoutError:
            _log.error("handlers are left behind: they do not let themselves be cancelled")

    async def _gather(self) -> None:
        await asyncio.wait([asyncio.wrap_future(task) for task in self._tasks])

    async def _main(self) -> None:
        database = AsyncInboxDatabase(self._engine, self._watch)
        try:
            while not self._board.closed:
                self._news.clear()
                jobs, seconds = self._board.take_or_listen()
                if jobs:
                    self._board.settle(await greenlet_spawn(self._performer.perform, jobs, database))
                    continue
                try:
                    await asyncio.wait_for(self._news.wait(), min(seconds, WAIT_SECONDS))
                except TimeoutError:
                    continue
        except BaseException as error:
            self._board.fail(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            await greenlet_spawn(database.close)
