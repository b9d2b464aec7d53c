"""Ending long-running work on SIGTERM or SIGINT: finish or give back within a deadline, then go, whatever hangs."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NamedTuple

from .exit_codes import ExitCode

log = logging.getLogger("pillarbox.cli")

_LOOK = 0.1  # seconds between looks at the signal's flag

SAME: Final = 1.0
"""Seconds in which a further signal counts as the same one: a terminal signals the whole group and a parent passes it
on, supervisors send to group and leader."""


class Received(NamedTuple):
    """A signal, and when it came by the monotonic clock."""

    number: int
    at: float


def run_until_signalled(
    work: Callable[[], None],
    stop: Callable[[], None],
    deadline: float,
    *,
    leaving: Callable[[int], None] | None = None,
) -> None:
    """Run ``work`` on a thread; on the first signal call ``stop``, on a second, or after ``deadline`` seconds, leave.

    A second signal is one that comes more than ``SAME`` seconds after the first. Raises what ``work`` raised. Leaving
    early exits the process at once, after ``leaving`` was told the signal's number: what was in flight is not settled
    and comes again when its lease ends, which costs duplicates and loses nothing.

    The handlers only note the signal. Setting an Event in a handler can deadlock with a wait on the same Event in the
    thread that was interrupted, so the work runs elsewhere and this thread does nothing but look.
    """
    failure: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread below
            failure.append(error)

    with _noted_signals() as received:
        thread = threading.Thread(target=guarded, name="pillarbox-work", daemon=True)
        thread.start()
        _watch(thread, received, stop, deadline, leaving or (lambda _number: None))
    if failure:
        raise failure[0]


def _watch(
    thread: threading.Thread,
    received: list[Received],
    stop: Callable[[], None],
    deadline: float,
    leaving: Callable[[int], None],
) -> None:
    leave_at: float | None = None
    while thread.is_alive():
        if received and leave_at is None:
            name = signal.Signals(received[0].number).name
            log.info("%s: finishing what is in flight, at most %g s", name, deadline)
            leave_at = time.monotonic() + deadline
            stop()
        second = next((one for one in received if one.at > received[0].at + SAME), None)
        if second is not None:
            leaving(second.number)
            _leave("second signal: leaving at once", 128 + second.number)
        if leave_at is not None and time.monotonic() >= leave_at:
            leaving(signal.SIGKILL)
            _leave(f"not finished after {deadline:g} s: leaving", ExitCode.FAILED)
        thread.join(_LOOK)


@contextmanager
def _noted_signals() -> Iterator[list[Received]]:
    """SIGTERM and SIGINT are appended to the list; the handlers before are back afterwards, if none came.

    After one, the process is ending: the same signal, passed on late by a parent, must not cut that short. (Python puts
    its own handlers back to the default while it ends, but not what is ignored.)
    """
    received: list[Received] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(Received(number, time.monotonic()))

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if received else handler)


def _leave(why: str, code: int) -> None:
    log.error("%s; what is in flight comes again when its lease ends", why)
    logging.shutdown()
    # Not sys.exit: the interpreter would wait for client threads that may hang on the network.
    os._exit(code)
