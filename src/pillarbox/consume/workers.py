"""Who carries the work out: the polling thread itself, or threads of their own, each with a database connection."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from sqlalchemy.engine import Engine

from .board import Board
from .database import InboxDatabase
from .performing import Performer
from .watch import HandlerWatch

_log = logging.getLogger("pillarbox.consume")

WAIT_SECONDS: Final = 0.5
"""How long an idle worker waits before it looks around; news wake it at once."""

JOIN_SECONDS: Final = 2.0
"""How long workers may take to end once they have been told to and have nothing to do."""


class Workers(Protocol):
    """One or many; started and stopped by the runner."""

    def start(self) -> None:
        """Begin to take work."""
        ...

    def turn(self, between: Callable[[], bool]) -> None:
        """The polling thread has time. ``between`` is called after each transaction; False: leave it at that."""
        ...

    def interrupt(self) -> None:
        """The drain deadline is over: interrupt handlers that still run."""
        ...

    def close(self) -> None:
        """End, and give connections back. Work in progress is not waited for."""
        ...


class OwnThread:
    """One worker: the polling thread. No hand-over, no switch of threads, and a signal can interrupt a handler."""

    def __init__(self, board: Board, performer: Performer, database: InboxDatabase) -> None:
        self._board = board
        self._performer = performer
        self._database = database

    def start(self) -> None:
        """Nothing to begin."""

    def turn(self, between: Callable[[], bool]) -> None:
        """Do what can be done now."""
        while jobs := self._board.take():
            self._board.settle(self._performer.perform(jobs, self._database))
            if not between():
                return

    def interrupt(self) -> None:
        """Whoever drains is not in a handler."""

    def close(self) -> None:
        """Give the connection back."""
        self._database.close()


class Threads:
    """``number`` daemon threads; a handler that never ends must not keep the process."""

    def __init__(
        self, board: Board, performer: Performer, engine: Engine, watch: HandlerWatch, *, number: int, name: str
    ) -> None:
        self._board = board
        self._performer = performer
        self._engine = engine
        self._watch = watch
        self._threads = [
            threading.Thread(target=self._main, name=f"pillarbox-worker-{name}-{n}", daemon=True)
            for n in range(1, number + 1)
        ]

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            thread.start()

    def turn(self, between: Callable[[], bool]) -> None:
        """They work by themselves."""

    def interrupt(self) -> None:
        """By an exception in each thread."""
        self._watch.interrupt_all()

    def close(self) -> None:
        """Wait a moment for the threads; one whose handler hangs is left behind."""
        self._board.close()
        until = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                _log.error("%s is left behind: its handler does not end", thread.name)

    def _main(self) -> None:
        database = InboxDatabase(self._engine, self._watch)
        try:
            while not self._board.closed:
                if jobs := self._board.take(WAIT_SECONDS):
                    self._board.settle(self._performer.perform(jobs, database))
        except BaseException as error:  # noqa: BLE001 - raised again in the polling thread
            self._board.fail(error)
        finally:
            database.close()
