"""A sender as a process of its own, which the lab kills: ``python -m pillarbox.lab.kafka.session``.

It reads its orders as one line of JSON, sends a first record, says ``ready`` and waits for a line; then it sends all
events and says as JSON what it was told of them. Without a parent it ends, within a minute if it is sending.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import LabError
from .trial import Setting

_DEADLINE = 60.0  # seconds for a session to become ready, and for its events to find an outcome


@dataclass(slots=True)
class Session:
    """The lab's side of it."""

    process: subprocess.Popen[str]

    def go(self) -> None:
        """Let it send its events."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def acknowledged(self) -> dict[str, int | None]:
        """Wait until it has sent all, and ask what it was told."""
        return dict(json.loads(self._line()))

    def kill(self) -> str:
        """SIGKILL; returns how it ended."""
        self.process.kill()
        return f"signal {-self.process.wait(10)}"

    def wait_until_ready(self) -> None:
        if self._line() != "ready":
            raise LabError("A sender of the lab did not come up.")

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise LabError(f"A sender of the lab has ended early, with status {self.process.wait(10)}.")
        return line


@contextmanager
def session(bootstrap: str, topic: str, settings: Mapping[str, Setting], event_ids: Sequence[str]) -> Iterator[Session]:
    """A new process with a producer session of its own, ready to send these events."""
    command = [sys.executable, "-m", __name__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        orders = {"bootstrap": bootstrap, "topic": topic, "settings": dict(settings), "event_ids": list(event_ids)}
        process.stdin.write(json.dumps(orders) + "\n")
        process.stdin.flush()
        started = Session(process)
        started.wait_until_ready()
        yield started
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    """The process itself."""
    from .topics import Sending

    orders = json.loads(sys.stdin.readline())
    sending = Sending(orders["bootstrap"], orders["topic"], orders["settings"])
    sending.warm_up()
    print("ready", flush=True)
    if not sys.stdin.readline():
        return  # the parent has gone
    for event_id in orders["event_ids"]:
        sending.send(event_id)
    sending.flush(_DEADLINE)
    print(json.dumps(sending.told), flush=True)


if __name__ == "__main__":
    main()
