"""Handlers under watch: one that takes too long is reported with its stack, and interrupted as well as Python allows.

A thread can be interrupted between two of its bytecodes, and in a statement that its database drops on request. In any
other call into C (a socket without time-out, ``time.sleep``) it goes on until that returns; its transaction stays open
so long, the mark in it keeps other copies of the event out, and the log says again and again that it still runs.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from ..errors import HandlerTimedOut
from .signals import DrainInterrupted

_log = logging.getLogger("pillarbox.consume")

AGAIN_SECONDS: Final = 10.0
"""The least time between two reports on one handler."""


class HandlerInterrupted(BaseException):
    """Raised inside a handler that is out of time. Not an Exception, so that ``except Exception`` lets it pass."""


class Interrupt(Protocol):
    """How a running handler is stopped: by an exception in its thread, or by cancelling its task."""

    def fire(self) -> None:
        """Ask for it, from any thread; called once at most, and only while the handler runs."""
        ...

    def retract(self) -> None:
        """The handler has ended: what was asked for and has not happened yet must not happen any more."""
        ...

    def stack(self) -> str:
        """Where the handler is just now, for the log."""
        ...


class ThreadInterrupt:
    """An exception in this thread; ``cancel`` drops the statement that it may be waiting for."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._thread = threading.get_ident()
        self._cancel = cancel

    def fire(self) -> None:
        _set_exception(self._thread, HandlerInterrupted)
        self._cancel()

    def retract(self) -> None:
        _set_exception(self._thread, None)

    def stack(self) -> str:
        frame = sys._current_frames().get(self._thread)
        return "(it has ended)" if frame is None else "".join(traceback.format_stack(frame, limit=40)).rstrip()


class Spell:
    """One call of a handler, from its beginning to its end."""

    def __init__(self, name: str, seconds: float | None, interrupt: Interrupt) -> None:
        self.name = name
        self.due = None if seconds is None else time.monotonic() + seconds
        self.interrupt = interrupt
        self.reported = 0
        self.fired: BaseException | None = None
        self._lock = threading.Lock()
        self._running = True

    def end(self, error: BaseException) -> None:
        """Interrupt the handler if it still runs; ``error`` is what the call ends with."""
        with self._lock:
            if self._running and self.fired is None:
                self.fired = error
                self.interrupt.fire()

    def over(self) -> BaseException | None:
        """The handler has ended; returns what it was interrupted for."""
        with self._lock:
            self._running = False
            if self.fired is not None:
                self.interrupt.retract()
        return self.fired


class HandlerWatch:
    """Watches the handlers of one consumer. ``seconds`` None: they have all the time there is until a stop.

    ``count`` is called once for each handler that ran out of time.
    """

    def __init__(self, consumer: str, seconds: float | None, count: Callable[[], None]) -> None:
        self._consumer = consumer
        self._seconds = seconds
        self._count = count
        self._spells: dict[int, Spell] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"pillarbox-watch-{consumer}", daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch while this is open."""
        if self._seconds is not None:
            self._thread.start()
        try:
            yield
        finally:
            self._ended.set()

    def run(self, name: str, handler: Callable[[], None], interrupt: Interrupt) -> None:
        """Call ``handler``. Raises HandlerTimedOut (PB-049) when its time ran out, even if it returned after all."""
        spell = Spell(name, self._seconds, interrupt)
        self._spells[id(spell)] = spell
        fired: BaseException | None = None
        try:
            try:
                handler()
            finally:
                fired = spell.over()
        except BaseException as error:
            # Once at most it comes late, in the lines above; then the handler has ended all the same.
            fired = spell.over()
            if fired is None or not isinstance(error, Exception | HandlerInterrupted | type(fired)):
                raise
        finally:
            del self._spells[id(spell)]
        if fired is not None:
            raise fired

    def interrupt_all(self) -> None:
        """The drain deadline is over."""
        for spell in list(self._spells.values()):
            spell.end(DrainInterrupted("The drain deadline is over."))

    def _main(self) -> None:
        assert self._seconds is not None
        while not self._ended.wait(min(self._seconds / 10, 1.0)):
            now = time.monotonic()
            for spell in list(self._spells.values()):
                if spell.due is not None and spell.due <= now:
                    self._late(spell, now)

    def _late(self, spell: Spell, now: float) -> None:
        assert self._seconds is not None
        spell.due = now + max(self._seconds, AGAIN_SECONDS)
        first, spell.reported = spell.reported == 0, spell.reported + 1
        says = "is out of time and interrupted" if first else "was interrupted and still runs"
        _log.error("consumer %s: the handler %s %s:\n%s", self._consumer, spell.name, says, spell.interrupt.stack())
        if first:
            self._count()
            try:
                spell.end(HandlerTimedOut(f"The handler {spell.name!r} took longer than {self._seconds:g} s."))
            except Exception:  # noqa: BLE001 - the watch goes on, whatever a driver says to being cancelled
                _log.exception("consumer %s: interrupting %s failed", self._consumer, spell.name)


def _set_exception(thread: int, kind: type[BaseException] | None) -> None:
    """Have a thread raise ``kind`` at its next bytecode; None takes it back."""
    raised = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
