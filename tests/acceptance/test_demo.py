"""The demo as a stranger runs it: real processes, real kills, and a verdict that can be trusted."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .processes import Inline


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command; its own deadline is shorter than this one."""
    return subprocess.run(
        [sys.executable, "-m", "pillarbox", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.timeout(250)
def test_the_demo_shows_ghosts_and_losses_of_the_naive_ways_and_none_of_the_outbox() -> None:
    done = demo("--orders", "80", "--kills", "2", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    ways = json.loads(done.stdout)["ways"]
    assert ways["inside"]["ghosts"] > 0
    assert ways["after"]["losses"] > 0
    assert ways["inside"]["applied_twice"] > 0
    outbox = ways["outbox"]
    assert (outbox["ghosts"], outbox["losses"], outbox["applied_twice"]) == (0, 0, 0)
    assert outbox["orders"] == outbox["events"] == outbox["published"] == outbox["applied"] > 0
    assert outbox["duplicates_delivered"] > 0  # the kills were real
    assert outbox["kills"] == {"shop": 2, "relay": 2, "stock": 2}


@pytest.mark.timeout(150)
def test_the_last_line_judges_the_outbox() -> None:
    done = demo("--only", "outbox", "--orders", "20", "--kills", "0")
    assert done.stdout.strip().splitlines()[-1] == "ghosts 0, losses 0, applied twice 0"
    assert done.returncode == 0


def test_a_broker_that_the_demo_does_not_know_is_refused_in_one_sentence() -> None:
    done = demo("--broker", "carrier-pigeon://loft")
    assert done.returncode != 0
    assert "PB-002" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_leaves_no_process_and_no_file(tmp_path: Path, number: signal.Signals) -> None:
    with a_running_demo(tmp_path) as (running, children):
        running.send_signal(number)
        time.sleep(0.05)
        running.send_signal(number)  # impatience
        assert running.wait(30) == 128 + number
        until(lambda: not any(map(is_alive, children)))
        assert list(tmp_path.iterdir()) == []


def test_the_processes_of_a_demo_that_was_killed_end_with_it(tmp_path: Path) -> None:
    with a_running_demo(tmp_path) as (running, children):
        running.kill()
        until(lambda: not any(map(is_alive, children)))


def test_without_a_temporary_folder_it_says_so(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: str) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    refused = inline.run("demo", "--only", "outbox")
    assert refused.code == 1
    refused.says("error [PB-060]", "No usable temporary directory", "TMPDIR")


@contextmanager
def a_running_demo(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A demo that has started its three processes, whose temporary files go to ``folder``."""
    command = [sys.executable, "-m", "pillarbox", "demo", "--only", "outbox", "--kills", "0"]
    with subprocess.Popen(
        command, env=os.environ | {"TMPDIR": str(folder)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        try:
            until(lambda: len(children_of(running.pid)) == 3)
            yield running, children_of(running.pid)
        finally:
            running.kill()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
