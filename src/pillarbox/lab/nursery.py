"""A process that others are forked from, in milliseconds each: everything is imported in it, and nothing open.

A new Python takes half a second of CPU; with a process killed twice a second that is the difference between testing the
product and testing the interpreter's start. No thread runs where this forks. It reads orders, one JSON object a line,
and reports what becomes of its children likewise:

* ``{"do": "start", "name": "relay-0", "role": "relay", "task": {…}, "log": "FILE"}`` → ``{"is": "started", "pid": …}``
* ``{"do": "signal", "pid": …, "signal": 9}``: only to a child that was not waited for, so never to a stranger
* ``{"do": "arm", "pid": …, "point": "relay.after-confirm", "signal": 9}``: passed on to the child's own pipe
* → ``{"is": "stopped", "pid": …}``, ``{"is": "ended", "pid": …, "how": "signal 9"}``

When the orders end, so do its children, and it.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

Live = Callable[[str, Mapping[str, Any], int], int]
"""What a child does: its role, its task, the pipe on which it is told what to do; returns its exit status."""


class Nursery:
    """``orders`` and ``reports`` are file descriptors; ``live`` is what its children do."""

    def __init__(self, orders: int, reports: int, live: Live) -> None:
        self._live = live
        self._orders = orders
        self._reports = reports
        self._children: dict[int, int] = {}  # pid: the pipe on which it is told what to do
        self._wake, self._woken = os.pipe()
        for end in (self._wake, self._woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Until the orders end."""
        rest = b""
        while True:
            ready, _, _ = select.select([self._orders, self._wake], [], [])
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, 65_536)
                self._reap()
            if self._orders in ready:
                data = os.read(self._orders, 65_536)
                if not data:
                    return self._end_all()
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        if order["do"] == "start":
            self._start(order)
            return
        self._reap()  # a pid that was waited for may be another's by now
        pid = order["pid"]
        if pid not in self._children:
            return
        if order["do"] == "signal":
            os.kill(pid, order["signal"])
        else:
            with suppress(BrokenPipeError, BlockingIOError):  # it is ending, or does not listen: then it is not armed
                os.write(self._children[pid], f"{order['signal']} {order['point']}\n".encode())

    def _start(self, order: dict[str, Any]) -> None:
        theirs, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(order, theirs, (ours, *self._children.values()))
        os.close(theirs)
        os.set_blocking(ours, False)
        self._children[pid] = ours
        self._report({"is": "started", "name": order["name"], "pid": pid})

    def _become(self, order: dict[str, Any], told: int, others: Sequence[int]) -> NoReturn:
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            # Ends of pipes that were inherited would keep the others from hearing that the nursery is gone.
            for end in (*others, self._orders, self._reports, self._wake, self._woken, log):
                if end > 2:
                    os.close(end)
            code = self._live(order["role"], order["task"], told)
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self._report({"is": "stopped", "pid": pid})
                continue
            os.close(self._children.pop(pid))
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            how = f"status {os.WEXITSTATUS(status)}" if number is None else f"signal {number}"
            self._report({"is": "ended", "pid": pid, "how": how})

    def _end_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)

    def _report(self, what: dict[str, Any]) -> None:
        data = memoryview(json.dumps(what).encode() + b"\n")
        while data:
            data = data[os.write(self._reports, data) :]
