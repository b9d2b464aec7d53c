"""Faults at named points, for tests: kill this process there, raise an error there, or hold it there.

The points are those of :data:`pillarbox.faultpoints.POINTS`, and your own: ``reach("shop.paid")`` in your code names
one. Each strike hits one passage, the first unless ``times`` says another, in whatever thread makes it. A block that
ends without its point having been reached raises :class:`PointNotReached`: a fault that never came proves nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import faultpoints
from ..errors import LabError, PointNotReached
from ..faultpoints import reach

_HELD = 60.0  # seconds after which a held thread goes on by itself: a test must not hang


class Strike:
    """What happened at the point so far."""

    def __init__(self, point: str, times: int = 1) -> None:
        self.point = point
        self._left = times
        self._lock = threading.Lock()
        self._reached = threading.Event()

    @property
    def reached(self) -> bool:
        """Whether the fault has struck."""
        return self._reached.is_set()

    def wait(self, seconds: float = 10.0) -> None:
        """Wait until it has struck; PointNotReached (PB-111) when it does not in time."""
        if not self._reached.wait(seconds):
            raise PointNotReached(f"{self.point} was not reached within {seconds:g} s.")

    def hits(self, name: str) -> bool:
        """Whether this passage is the one."""
        if name != self.point:
            return False
        with self._lock:
            self._left -= 1
            hit = self._left == 0
        if hit:
            self._reached.set()
        return hit


class Hold(Strike):
    """A thread is held at the point until :meth:`go`, or the end of the block."""

    def __init__(self, point: str, times: int = 1) -> None:
        super().__init__(point, times)
        self._going = threading.Event()

    def go(self) -> None:
        """Let it go on."""
        self._going.set()

    def hold(self) -> None:
        self._going.wait(_HELD)


@contextmanager
def fail_at(point: str, error: BaseException | type[BaseException], *, times: int = 1) -> Iterator[Strike]:
    """Within the block, raise ``error`` where ``point`` is reached, as the code around it would.

    >>> from pillarbox.lab.strikes import fail_at, reach
    >>> with fail_at("shop.paid", ConnectionError("gone")) as strike:
    ...     try:
    ...         reach("shop.paid")
    ...     except ConnectionError as error:
    ...         print(error, strike.reached)
    gone True
    """
    strike = Strike(point, times)

    def fail() -> None:
        raise error

    with _attached(strike, fail):
        yield strike


@contextmanager
def stall_at(point: str, *, times: int = 1) -> Iterator[Hold]:
    """Within the block, hold the thread that reaches ``point`` until ``go()``; ``wait()`` waits until it is there.

    The thread goes on at the end of the block in any case, and after 60 s.
    """
    hold = Hold(point, times)
    with _attached(hold, hold.hold):
        try:
            yield hold
        finally:
            hold.go()


@contextmanager
def kill_at(point: str, *, times: int = 1) -> Iterator[Strike]:
    """Within the block, SIGKILL **this process** where ``point`` is reached: nothing is flushed, closed or rolled back.

    For a process of its own (``multiprocessing``, a script); refused with LabError (PB-100) in the process that runs
    pytest. To strike a program without changing it, start it with ``python -m pillarbox.lab.struck``.
    """
    if "pytest" in sys.modules and multiprocessing.parent_process() is None:
        raise LabError(
            "kill_at would kill the test run itself.",
            fix="Use it in a child process, or start the program with python -m pillarbox.lab.struck.",
        )
    strike = Strike(point, times)
    with _attached(strike, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        yield strike


@contextmanager
def _attached(strike: Strike, act: Callable[[], None]) -> Iterator[None]:
    def hook(name: str) -> None:
        if before is not None:
            before(name)
        if strike.hits(name):
            act()

    before = faultpoints.attach(hook)
    try:
        yield
    finally:
        faultpoints.attach(before)
    if not strike.reached:
        raise PointNotReached(f"{strike.point} was never reached, so nothing was struck.")


__all__ = ["Hold", "Strike", "fail_at", "kill_at", "reach", "stall_at"]
