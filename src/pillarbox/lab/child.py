"""A process of a cell from the inside: it does its role's work, and tells the lab of every point that it reaches.

At some points it waits until the lab says how it goes on: that is where it is killed or frozen, where a link is cut, or
where an error is raised.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from itertools import count
from queue import SimpleQueue
from typing import Any

from .. import faultpoints
from .points import current_event


class Struck(Exception):
    """The error that the lab raises at a point, in place of one that the program could meet there."""


class Line:
    """The conversation with the lab, over a Unix socket. Any thread may use it."""

    def __init__(self, path: str, name: str, waits_at: frozenset[str]) -> None:
        self._waits_at = waits_at
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._writing = threading.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._told_to_end = threading.Event()
        self._when_told: Callable[[], None] = lambda: None
        self._say({"name": name, "pid": os.getpid()})
        threading.Thread(target=self._listen, name="line", daemon=True).start()

    @property
    def goes_on(self) -> bool:
        """False once the lab has asked this process to end in good order."""
        return not self._told_to_end.is_set()

    def when_told(self, end: Callable[[], None]) -> None:
        """Call ``end``, from another thread, when the process is asked to end; at once if it was already."""
        self._when_told = end
        if self._told_to_end.is_set():
            end()

    def reach(self, point: str) -> None:
        """The fault hook: say it, and where the lab wants it, wait for the answer. Raises Struck when told to."""
        if point not in self._waits_at:
            self.tell(point)
        elif self.ask(point).get("do") == "fail":
            raise Struck(f"the lab's fault at {point}")

    def tell(self, point: str, **more: Any) -> None:
        """Say that ``point`` is reached."""
        self._say({"point": point, "event": current_event(), "at": time.time(), **more})

    def ask(self, point: str) -> dict[str, Any]:
        """Say that ``point`` is reached, and wait for what the lab answers."""
        number = next(self._numbers)
        answer = self._waiting[number] = SimpleQueue()
        self.tell(point, ticket=number)
        try:
            return answer.get()
        finally:
            del self._waiting[number]

    def _say(self, what: dict[str, Any]) -> None:
        with self._writing:
            self._socket.sendall(json.dumps(what).encode() + b"\n")

    def _listen(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                order = json.loads(line)
                if order["do"] == "end":
                    self._told_to_end.set()
                    self._when_told()
                    for answer in list(self._waiting.values()):
                        answer.put(order)
                else:
                    self._waiting[order["ticket"]].put(order)
        os._exit(70)  # the lab is gone


def live(role: str, task: Mapping[str, Any], told: int) -> int:
    """Do the work of ``role`` until it ends or is ended; returns the exit status."""
    from .roles import ROLES

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the lab's matter
    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s {role} %(process)d %(name)s %(message)s")
    threading.Thread(target=_end_with, args=(told,), name="parent", daemon=True).start()
    line = Line(task["line"], task["name"], frozenset(task["waits_at"]))
    faultpoints.attach(line.reach)
    try:
        ROLES[role](task, line)
    except BaseException as error:  # noqa: BLE001 - the status says it, the log keeps it
        traceback.print_exc()
        sys.stderr.flush()
        line.tell("ended", error=f"exception {type(error).__name__}: {error}")
        return 1
    return 0


def _end_with(told: int) -> None:
    """However the process that forked this one has ended: its end of the pipe is closed."""
    while os.read(told, 4096):
        pass
    os._exit(70)
