"""An event loop on a thread of its own, for a client that knows no threads. Nobody waits for it without a deadline."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from ...errors import UsedAfterFork

T = TypeVar("T")


class LoopThread:
    """Started with the first call. Not to be used across a fork (PB-028): the thread stays with the parent."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._start = threading.Lock()
        self._pid = os.getpid()
        self._stopped = False

    def ask(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run it there and return its result; after ``seconds`` it is cancelled and TimeoutError raised."""
        asked = self.start(work)
        try:
            return asked.result(seconds)
        except TimeoutError:
            asked.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there; the future can be cancelled."""
        try:
            self._living()
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def tell(self, function: Callable[..., object], *arguments: object) -> None:
        """Call it there, soon."""
        self._living()
        self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self, farewell: Coroutine[Any, Any, object] | None = None, seconds: float = 3.0) -> None:
        """Run ``farewell`` for at most ``seconds``, cancel what is left and end the thread. Twice is no error."""
        if self._stopped or self._thread.ident is None or os.getpid() != self._pid:
            if farewell is not None:
                farewell.close()
            if os.getpid() == self._pid and not self._thread.is_alive():
                self._loop.close()
            self._stopped = True
            return
        self._stopped = True
        if farewell is not None:
            with suppress(TimeoutError, OSError):  # the other end does not play along: then without it
                asyncio.run_coroutine_threadsafe(farewell, self._loop).result(seconds)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(seconds)

    def _living(self) -> None:
        if os.getpid() != self._pid:
            raise UsedAfterFork("This connection to NATS was made in another process (before a fork).")
        with self._start:
            if self._stopped:
                raise RuntimeError(f"{self._name} was closed")
            if self._thread.ident is None:
                self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=1.0))
        finally:
            self._loop.close()
