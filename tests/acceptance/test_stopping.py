"""Work that hangs does not keep a process alive: at the deadline, or at a second signal, it leaves."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from pillarbox.cli.signals import run_until_signalled

HANGING = """
import logging, sys, threading
from pillarbox.cli.signals import run_until_signalled
logging.basicConfig(level="INFO", stream=sys.stderr, format="%(message)s")
never = threading.Event()
run_until_signalled(lambda: (print("working", flush=True), never.wait()), lambda: None, {deadline})
"""


@pytest.fixture
def hanging(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    program = HANGING.format(deadline=request.param)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        yield process
        process.kill()


@pytest.mark.parametrize("hanging", [0.3], indirect=True)
def test_at_the_deadline_it_leaves_with_1(hanging: subprocess.Popen[str]) -> None:
    hanging.send_signal(signal.SIGTERM)
    _, said = hanging.communicate(timeout=10)
    assert hanging.returncode == 1
    assert "SIGTERM: finishing what is in flight, at most 0.3 s" in said
    assert "not finished after 0.3 s: leaving; what is in flight comes again" in said


@pytest.mark.parametrize("hanging", [60], indirect=True)
def test_a_second_signal_ends_it_at_once(hanging: subprocess.Popen[str]) -> None:
    hanging.send_signal(signal.SIGTERM)
    assert hanging.stderr is not None
    assert "finishing" in hanging.stderr.readline()
    deadline = time.monotonic() + 10
    while hanging.poll() is None and time.monotonic() < deadline:
        hanging.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert hanging.wait(5) == 128 + signal.SIGINT


@pytest.mark.parametrize("hanging", [3], indirect=True)
def test_the_same_signal_delivered_twice_at_once_counts_as_one(hanging: subprocess.Popen[str]) -> None:
    """A terminal signals the whole group, and a parent passes the signal on."""
    hanging.send_signal(signal.SIGTERM)
    hanging.send_signal(signal.SIGINT)
    _, said = hanging.communicate(timeout=10)
    assert hanging.returncode == 1
    assert "not finished after 3 s: leaving" in said


def test_what_the_work_raises_comes_out_and_the_handlers_before_are_back() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_until_signalled(fail, lambda: None, 1)
    assert signal.getsignal(signal.SIGTERM) is before
