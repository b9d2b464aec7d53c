"""One process of a cell, seen from outside: what it says, what it is told, how it ends."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import LabError
from .model import EventId, Exit

DEADLINE: Final = 30.0
"""Seconds for a process to start, to reach its next point, or to end."""

_LAST_WORDS: Final = 0.5
"""Seconds in which a process that was gone before its call was answered may still be heard."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A process has reached a point; with a ``ticket`` it waits there until it is answered."""

    at: float
    point: str
    event_id: EventId | None
    ticket: int | None


class Process:
    """One process of a cell. Its reports come in order from :meth:`next`; its end is the last of them."""

    def __init__(self, role: str, name: str, signal_: Callable[[int, int], None]) -> None:
        self.role = role
        self.name = name
        self.pid = 0
        self.began = time.time()
        self.exit: Exit | None = None
        self.reached: list[Reached] = []
        self._signal = signal_
        self._news = threading.Condition()
        self._fresh: deque[Reached] = deque()
        self._line: socket.socket | None = None
        self._error: str | None = None
        self._ended: tuple[str, float] | None = None
        self._frozen = False
        self._silent = False  # its line has ended: everything that it said has been read

    # Asking -------------------------------------------------------------------------------------------------------

    def next(self, timeout: float) -> Reached | None:
        """Its next report; None when it has ended, or when nothing came within ``timeout`` seconds."""
        with self._news:
            self._news.wait_for(lambda: self._fresh or self.is_over, timeout)
            return self._fresh.popleft() if self._fresh else None

    def wait_for(self, point: str, timeout: float = DEADLINE) -> Reached:
        """Its next report of ``point``; what comes before is passed over. LabError when it does not come."""
        end = time.monotonic() + timeout
        while True:
            found = self.next(end - time.monotonic())
            if found is None:
                how = self.exit.how if self.exit else f"not there after {timeout:g} s"
                raise LabError(f"The {self.role} process did not reach {point}: {how}.")
            if found.point == point:
                return found

    def count(self, point: str) -> int:
        """How often it has reached ``point``."""
        return sum(one.point == point for one in list(self.reached))

    @property
    def is_over(self) -> bool:
        """It has ended, and all that it said is known."""
        return self.exit is not None

    # Telling ------------------------------------------------------------------------------------------------------

    def go(self, reached: Reached, **more: Any) -> None:
        """Let it go on from a point where it waits."""
        self._tell({"do": "go", "ticket": reached.ticket, **more})

    def fail(self, reached: Reached) -> None:
        """Let it go on with an exception."""
        self._tell({"do": "fail", "ticket": reached.ticket})

    def kill(self) -> Exit:
        """SIGKILL; returns when it was waited for."""
        return self._end_by(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP; returns when it stands still."""
        self._signal(self.pid, signal.SIGSTOP)
        with self._news:
            if not self._news.wait_for(lambda: self._frozen or self.exit is not None, DEADLINE):
                raise LabError(f"The {self.role} process {self.pid} could not be stopped.")

    def thaw(self) -> None:
        """SIGCONT."""
        self._frozen = False
        self._signal(self.pid, signal.SIGCONT)

    def ask_to_end(self) -> None:
        """Ask it to end in good order, and do not wait for that."""
        self._tell({"do": "end"})

    def stop(self, timeout: float = DEADLINE) -> Exit:
        """Ask it to end in good order; SIGKILL when it does not within ``timeout`` seconds."""
        self.ask_to_end()
        with self._news:
            if self._news.wait_for(lambda: self.exit is not None, timeout) and self.exit:
                return self.exit
        return self.kill()

    def wait(self, timeout: float = DEADLINE) -> Exit:
        """Its end; LabError when it does not come."""
        with self._news:
            if not self._news.wait_for(lambda: self.exit is not None, timeout) or self.exit is None:
                raise LabError(f"The {self.role} process {self.pid} did not end within {timeout:g} s.")
            return self.exit

    def _end_by(self, number: int) -> Exit:
        with self._news:
            self._news.wait_for(lambda: self.pid or self.exit is not None, DEADLINE)
        if self.exit is None:
            self._signal(self.pid, number)
        return self.wait()

    def _tell(self, order: Mapping[str, Any]) -> None:
        with self._news:
            self._news.wait_for(lambda: self._line is not None or self.exit is not None, DEADLINE)
            line = self._line
        if line is not None:
            try:
                line.sendall(json.dumps(order).encode() + b"\n")
            except OSError:  # it has just ended: its exit says how
                return

    # What the crew hears ------------------------------------------------------------------------------------------

    def started(self, pid: int) -> None:
        """It was forked."""
        with self._news:
            self.pid = pid
            self._news.notify_all()

    def connected(self, line: socket.socket) -> None:
        """It has called."""
        with self._news:
            self._line = line
            self._news.notify_all()

    def said(self, what: Mapping[str, Any]) -> None:
        """A report."""
        with self._news:
            if what["point"] == "ended":
                self._error = what["error"]
            else:
                event_id = EventId(what["event"]) if what["event"] else None
                one = Reached(what["at"], what["point"], event_id, what.get("ticket"))
                self.reached.append(one)
                self._fresh.append(one)
            self._news.notify_all()

    def fell_silent(self) -> None:
        """Its line is closed: no more will be heard of it."""
        with self._news:
            self._silent = True
            self._settle()

    def stopped(self) -> None:
        """It was waited for and is frozen."""
        with self._news:
            self._frozen = True
            self._news.notify_all()

    def ended(self, how: str) -> None:
        """It was waited for and is gone. What it said last may still be on its way."""
        with self._news:
            self._ended = how, time.time()
            if self._line is None:  # it did not call, or its call is not answered yet
                threading.Timer(_LAST_WORDS, self.fell_silent).start()
            self._settle()

    def _settle(self) -> None:
        if self._ended is not None and self._silent and self.exit is None:
            how, at = self._ended
            self.exit = Exit(self.role, self.pid, self._error or how, at)
        self._news.notify_all()
