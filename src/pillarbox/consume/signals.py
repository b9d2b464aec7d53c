"""SIGTERM and SIGINT while a consumer runs: first drain, then, at the deadline or a second signal, interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class DrainInterrupted(BaseException):
    """The handler in progress took longer than the drain deadline: it is rolled back, and its event comes again.

    Not an Exception, so that a handler's ``except Exception`` does not swallow it (like KeyboardInterrupt).
    """


@contextmanager
def draining_signals(stop: Callable[[], None], deadline: float) -> Iterator[None]:
    """Call ``stop`` on the first signal; raise DrainInterrupted in the main thread ``deadline`` seconds later.

    Does nothing outside the main thread, where Python allows no signal handlers. Restores what was there before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    drain = _Drain(stop, deadline)
    names = [signal.SIGTERM, signal.SIGINT]
    before = {name: signal.signal(name, drain.on_signal) for name in names}
    try:
        yield
    finally:
        drain.finished()
        for name, handler in before.items():
            signal.signal(name, handler if handler is not None else signal.SIG_DFL)


class _Drain:
    def __init__(self, stop: Callable[[], None], deadline: float) -> None:
        self._stop = stop
        self._deadline = deadline
        self._timer: threading.Timer | None = None
        self._over = False

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._over:
            return
        if self._timer is not None:
            raise DrainInterrupted
        self._stop()
        self._timer = threading.Timer(self._deadline, _wake_main_thread)
        self._timer.daemon = True
        self._timer.start()

    def finished(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()


def _wake_main_thread() -> None:
    """A real signal and not just a flag: it also wakes a handler that waits in a system call.

    Sent to the main thread itself. Raised in the timer's thread, it would leave the main thread asleep.
    """
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGTERM)
    else:
        signal.raise_signal(signal.SIGTERM)
