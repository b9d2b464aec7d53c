"""`pillarbox` as a real process, run to its end or until a signal; and, for many small cases, in this process."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from pillarbox.cli import main

COMMAND = [sys.executable, "-m", "pillarbox"]


@dataclass(frozen=True)
class Finished:
    """What a process left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def says(self, *parts: str) -> Finished:
        """Assert that it failed the way a command must: these words on stderr, and no traceback."""
        for part in parts:
            assert part in self.err, f"{part!r} is not in: {self.err}"
        assert "Traceback" not in self.err, self.err
        return self


class Started:
    """A process that goes on. Its output is in files, so that it never blocks on a full pipe."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process, self._out, self._err = process, out, err

    @property
    def err(self) -> str:
        return self._err.read_text(encoding="utf-8")

    @property
    def out(self) -> str:
        return self._out.read_text(encoding="utf-8")

    def wait_for(self, text: str, timeout: float = 20.0) -> None:
        """Until ``text`` is on stderr."""
        self.until(lambda: text in self.err, timeout)

    def until(self, condition: Callable[[], object], timeout: float = 20.0) -> None:
        """Until ``condition`` holds; fails when the process ends before, or time is up."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.err}"
            assert time.monotonic() < deadline, f"not in {timeout} s: {self.err}"
            time.sleep(0.02)

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def ended(self, timeout: float = 20.0) -> Finished:
        """Wait for its end."""
        code = self.process.wait(timeout)
        return Finished(code, self.out, self.err)


class Commands(Protocol):
    """Runs a command to its end."""

    folder: Path

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> Finished: ...


@dataclass(frozen=True)
class Cli:
    """Real processes: runs commands in a folder of their own, in an environment without any setting but those given."""

    folder: Path

    def run(self, *arguments: str, env: dict[str, str] | None = None, typed: str = "", timeout: float = 60) -> Finished:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=environment(env),
            input=typed,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Started]:
        out, err = (self.folder / f"{arguments[0]}-{time.monotonic_ns()}.{end}" for end in ("out", "err"))
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                [*COMMAND, *arguments], cwd=self.folder, env=environment(env), stdout=out_file, stderr=err_file
            )
            try:
                yield Started(process, out, err)
            finally:
                process.kill()
                process.wait(10)


@dataclass(frozen=True)
class Inline:
    """The same without a process of its own: the whole command line, from its arguments to its exit code."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> Finished:
        with self.monkeypatch.context() as patch, logging_kept():
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["pillarbox", *arguments])
            patch.setattr(sys, "stdin", io.StringIO())
            patch.setattr(os, "environ", environment(env))
            self.capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main()
            out, err = self.capsys.readouterr()
            return Finished(int(ended.value.code or 0), out, err)


@contextmanager
def logging_kept() -> Iterator[None]:
    """The command line configures logging for its process; the tests' own is back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("pillarbox")
    before = root.handlers[:], root.level, ours.level
    try:
        yield
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])


def environment(given: dict[str, str] | None) -> dict[str, str]:
    """This process's, without any setting of Pillarbox but those given, and with output buffered as it is for users."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PILLARBOX_") and name != "PYTHONUNBUFFERED"
    }
    return clean | {"NO_COLOR": "1", "COLUMNS": "200"} | (given or {})
