"""The place of one relay process among several: who holds it now, what it last said, and when the next one starts."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any, Final

from ...clock import Clock, SystemClock
from ...observe.snapshot import Snapshot, not_running
from ...policy.health import Health
from .plan import DEFAULT
from .restarts import Restarts

log = logging.getLogger("pillarbox.cli")

SILENT: Final = 10.0
"""Seconds without a word after which a process counts as not ready; after a lease it counts as dead."""


_LAST_WORDS: Final = 2.0  # seconds to read what an ended process left in the pipe


class Place:
    """``process`` is its number; ``restarts`` says when another one starts, and when none does any more."""

    def __init__(self, process: int, order: str, lease: float, restarts: Restarts, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.process = process
        self.code = 0
        self.report: dict[str, Any] = {}
        self._order = order
        self._lease = lease
        self._restarts = restarts
        self._child: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._started_at = 0.0
        self._start_at: float | None = None
        self._closed = False
        self._said: list[Snapshot] = []
        self._said_at = 0.0

    @property
    def is_open(self) -> bool:
        """Somebody works here, or will again."""
        return self._child is not None or not self._closed

    def start(self, spawn: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Start a process, and hand it its order."""
        self._start_at = None
        self._said = []
        self._started_at = self._said_at = self._clock.monotonic()
        child = self._child = spawn()
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: ended() tells
            child.stdin.write(self._order.encode() + b"\n")
            child.stdin.flush()
        name = f"relay-process-{self.process}"
        self._listener = threading.Thread(target=self._listen, args=(child.stdout,), name=name, daemon=True)
        self._listener.start()
        log.info("relay process %d is %d", self.process, child.pid)

    def start_if_due(self, spawn: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Start the next one when its time has come."""
        if self._closed or self._child is not None or self._start_at is None:
            return
        if self._clock.monotonic() >= self._start_at:
            self.start(spawn)

    def ended(self) -> int | None:
        """The exit code of the process, once, when it has ended."""
        if self._child is None or (code := self._child.poll()) is None:
            return None
        self._let_go(self._child)
        self.code = code
        return code

    def plan_restart(self) -> float | None:
        """Seconds until another one starts; None when it died too often."""
        pause = self._restarts.after(self._clock.monotonic() - self._started_at)
        if pause is None:
            self._closed = True
        else:
            self._start_at = self._clock.monotonic() + pause
            self.code = 0  # mended, unless the next one ends badly
        return pause

    def close(self) -> None:
        """Nobody starts here again."""
        self._closed = True

    def signal(self, number: int) -> None:
        child = self._child
        if child is not None:
            child.send_signal(number)

    def snapshots(self, outboxes: Sequence[str]) -> list[Snapshot]:
        """What it last said; that it is silent, or not there, when that is so."""
        silent = self._clock.monotonic() - self._said_at
        if self._child is None or not self._said:
            why = "the process is being started"
            live = silent <= self._lease
            return [
                not_running(self.process, outbox or DEFAULT, "", why, self._restarts.total, live=live)
                for outbox in outboxes
            ]
        found = [one._replace(restarts=one.restarts + self._restarts.total) for one in self._said]
        if silent <= SILENT:
            return found
        problem = f"the process has not said a word for {silent:.0f} s"
        return [one._replace(health=Health(silent <= self._lease, False, (problem,))) for one in found]

    def _listen(self, lines: IO[bytes]) -> None:
        for line in lines:
            try:
                found = json.loads(line)
                self._said = [Snapshot.from_dict(one) for one in found["snapshots"]]
            except (ValueError, KeyError, TypeError):
                log.warning("relay process %d said what nobody understands: %r", self.process, line[:200])
                continue
            self._said_at = self._clock.monotonic()
            self.report = found.get("report", self.report)

    def _let_go(self, child: subprocess.Popen[bytes]) -> None:
        self._child = None
        if self._listener is not None:
            self._listener.join(_LAST_WORDS)
        with contextlib.suppress(BrokenPipeError):
            assert child.stdin is not None
            child.stdin.close()
