"""Processes that work side by side: each is told what to do by one line of JSON, and answers in lines of JSON.

A child says a first line when it is ready, answers each further line that it gets, and ends when its standard input
does, with one last line. What it is, is named by its role: a module of this package with a function ``main(told)``.
"""

from __future__ import annotations

import importlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
ENDING = 60.0

Told = dict[str, Any]


class Child:
    """A running child, from its parent's side."""

    def __init__(self, role: str, told: Told) -> None:
        self._role = role
        command = [sys.executable, "-m", "bench.child", role]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._say(told)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def hear(self, seconds: float) -> Any:
        """Its next line; RuntimeError when it died, or kept silent for so long."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise RuntimeError(f"the {self._role} said nothing for {seconds:g} s") from None
        if not line:
            raise RuntimeError(f"the {self._role} died with {self._process.wait(ENDING)}")
        return json.loads(line)

    def ask(self, question: str, seconds: float = 30.0) -> Any:
        """Its answer."""
        self._say(question)
        return self.hear(seconds)

    def end(self, seconds: float = ENDING) -> Any:
        """Its last line."""
        assert self._process.stdin
        self._process.stdin.close()
        last = self.hear(seconds)
        self._process.wait(ENDING)
        return last

    def kill(self) -> None:
        """At once, if it still runs."""
        self._process.kill()
        self._process.wait(ENDING)

    def _say(self, something: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(something) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


@contextmanager
def started(role: str, told: Told, *, ready: float = 60.0) -> Iterator[Child]:
    """A child that has said that it is ready, killed at the end if it has not ended by then."""
    child = Child(role, told)
    try:
        child.hear(ready)
        yield child
    finally:
        child.kill()


def say(something: object) -> None:
    """One line to the parent."""
    print(json.dumps(something), flush=True)


def questions() -> Iterator[str]:
    """What the parent asks, until it has no more to say."""
    for line in sys.stdin:
        yield json.loads(line)


if __name__ == "__main__":
    importlib.import_module(f"bench.{sys.argv[1]}").main(json.loads(sys.stdin.readline()))
