"""The user's own commands, which restart brokers and databases: run one at a time, each with a deadline."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ...errors import ConfigError
from .happened import Happened


@dataclass(slots=True)
class _Running:
    command: str
    process: subprocess.Popen[bytes]
    began: float


class Disturbances:
    """Runs ``commands`` by number; what they print goes into ``log``. At the end whatever still runs is ended."""

    def __init__(
        self, commands: Sequence[str], log: Path, tell: Callable[[Happened], None], *, deadline: float
    ) -> None:
        self._commands = commands
        self._words = [split(command) for command in commands]
        self._log = log
        self._tell = tell
        self._deadline = deadline
        self._running: _Running | None = None
        self._waiting: list[int] = []

    def __enter__(self) -> Disturbances:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.clear()
        if self._running is not None:
            self._end(self._running)

    @property
    def busy(self) -> bool:
        """Something runs, or waits to be run."""
        return self._running is not None or bool(self._waiting)

    def run(self, number: int) -> None:
        """Run this command, after the one that runs now."""
        self._waiting.append(number)
        self.tend()

    def tend(self) -> None:
        """See what has ended, end what is over its deadline, begin the next."""
        running = self._running
        if running is not None:
            seconds = time.monotonic() - running.began
            status = running.process.poll()
            if status is None and seconds < self._deadline:
                return
            if status is None:
                self._end(running)
            what = f"not done after {self._deadline:g} s, ended" if status is None else f"status {status}"
            self._tell(Happened(time.time(), "disturb", running.command, what, round(seconds, 3)))
            self._running = None
        if self._waiting:
            self._begin(self._waiting.pop(0))

    def _begin(self, number: int) -> None:
        command = self._commands[number]
        with self._log.open("ab") as log:
            try:
                process = subprocess.Popen(
                    self._words[number], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            except OSError as error:
                self._tell(Happened(time.time(), "disturb", command, f"cannot be run: {error.strerror}"))
                return
        self._running = _Running(command, process, time.monotonic())

    def _end(self, running: _Running) -> None:
        # The whole group: a script that is killed alone leaves what it started.
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait(10)


def split(command: str) -> list[str]:
    """The words of a command. ConfigError (PB-001) for none, or a quote without its end."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--disturb {command!r} cannot be split into words: {error}.") from error
    if not words:
        raise ConfigError("--disturb is empty.", fix="Give a command, for instance --disturb 'docker restart broker'.")
    return words
