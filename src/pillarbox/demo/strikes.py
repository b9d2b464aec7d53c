"""Where and when processes are killed, and the child processes that this happens to.

A child can be told to stop dead at a named fault point: it says so on its standard output and waits for its end. The
parent then kills it with SIGKILL (on Windows: TerminateProcess), so the kill hits exactly that place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .. import faultpoints

STALL_VARIABLE = "DEMO_STALL"
COUNT_VARIABLE = "DEMO_DELIVERIES"
_STALLED = "stalled at "


@dataclass(frozen=True, slots=True)
class Strike:
    """Kill when the ``times``-th passage of ``point`` is reached."""

    point: str
    times: int

    def as_text(self) -> str:
        """As the child reads it from its environment."""
        return f"{self.point}:{self.times}"


def obey(environment: Mapping[str, str] = os.environ) -> None:
    """In the child: attach the fault hook that the environment asks for, and end when the parent does."""
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    point, _, times = environment.get(STALL_VARIABLE, "").rpartition(":")
    count_file = environment.get(COUNT_VARIABLE)
    counter = Path(count_file).open("ab", buffering=0) if count_file else None  # noqa: SIM115 - open until killed
    left = int(times) if times else 0

    def hook(name: str) -> None:
        nonlocal left
        if counter is not None and name == "consumer.received":
            counter.write(b".")
        if name == point:
            left -= 1
            if left == 0:
                print(_STALLED + name, flush=True)
                threading.Event().wait()  # until it is killed, or its parent is

    faultpoints.attach(hook)


def _end_with_parent() -> None:
    """However the parent ended, even by SIGKILL, its end of this pipe is closed."""
    os.read(0, 1)
    os._exit(70)


class Child:
    """One role, run as a real process, again and again, through a list of strikes; the last run is left alone."""

    def __init__(self, role: str, environment: Mapping[str, str], strikes: list[Strike], log: Path) -> None:
        self.role = role
        self.kills = 0
        self.stall_lines: list[str] = []
        self._environment = dict(environment)
        self._strikes = list(strikes)
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._stalled = threading.Event()
        self._asked = False

    def start(self, **extra: str) -> None:
        """Start it, with the next strike if one is left."""
        environment = {**os.environ, **self._environment, **extra}
        environment.pop(STALL_VARIABLE, None)
        if self._strikes:
            environment[STALL_VARIABLE] = self._strikes.pop(0).as_text()
        self._stalled = threading.Event()
        self._asked = False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pillarbox.demo.child", self.role],
                env=environment,
                stdin=subprocess.PIPE,  # never written to: it ends with this process
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout, self._stalled), daemon=True).start()

    def _listen(self, output: IO[str], stalled: threading.Event) -> None:
        for line in output:
            if line.startswith(_STALLED):
                stalled.set()

    @property
    def stalled(self) -> bool:
        """True when it waits at its fault point for the kill."""
        return self._stalled.is_set()

    @property
    def finished(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.poll() if self._process else None

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)
        self.kills += 1

    def strike_if_stalled(self, **extra: str) -> bool:
        """When it has reached its fault point: kill it there and start it anew."""
        if not self.stalled:
            return False
        self.kill()
        self.start(**extra)
        return True

    def ask_to_end(self) -> None:
        """SIGTERM, without waiting; once, since a second signal would be impatience."""
        if self._process is not None and self._process.poll() is None and not self._asked:
            self._asked = True
            self._process.terminate()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after ten seconds."""
        if self._process is None or self._process.poll() is not None:
            return
        self.ask_to_end()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
