"""``python -m tests``: what ``make test`` runs.

Most tests wait for something most of the time, so several run at once, each with its own database, virtual host or
topic. A few that fail side by side are run again alone, and that is said: on two busy cores a deadline can be missed
for no fault of the code; what fails alone as well has failed. Tests that kill or freeze a shared server run after all
others, alone; the few of those that fail are run once more as well. Arguments go to pytest.
"""

import os
import signal
import subprocess
import sys

WORKERS = os.environ.get("PILLARBOX_TEST_WORKERS", "3")
"""More than the two cores of a small machine: a test that waits for a lease uses none."""

AGAIN = 5
"""How many tests may be run again; more have not failed by chance."""

TESTS_FAILED, NO_TESTS = 1, 5  # pytest's exit statuses
SIDE_BY_SIDE = ["-n", WORKERS, "--dist", "worksteal", "--maxfail", "50", "-m", "not long and not fault"]
FAILED_ONES_ALONE = ["--last-failed", "--last-failed-no-failures", "none", "--maxfail", str(AGAIN)]
BREAKING_SERVERS = ["-m", "fault and not long"]


def main(arguments: list[str]) -> int:
    """Run both kinds, whatever the first one says; the worse status counts."""
    statuses = [
        _with_a_second_try(arguments, SIDE_BY_SIDE, "not long and not fault"),
        _with_a_second_try(arguments, BREAKING_SERVERS, "fault and not long"),
    ]
    ran = [status for status in statuses if status != NO_TESTS]
    return max(ran, key=abs) if ran else NO_TESTS


def _with_a_second_try(arguments: list[str], how: list[str], marks: str) -> int:
    status = _pytest(*how, *arguments)
    if status == TESTS_FAILED and 0 < (failed := _last_failed(arguments, marks)) <= AGAIN:
        print(f"== {failed} failed: run again alone", flush=True)
        status = _pytest(*FAILED_ONES_ALONE, "-m", marks, *arguments)
    return status


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "--durations=10", *arguments], check=False).returncode


def _last_failed(arguments: list[str], marks: str) -> int:
    chosen = [*FAILED_ONES_ALONE[:3], "-m", marks, *arguments]
    listing = [sys.executable, "-m", "pytest", "--collect-only", "-q", *chosen]
    found = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
    return sum(1 for line in found.splitlines() if "::" in line)


if __name__ == "__main__":
    # A background job starts with SIGINT ignored, and so would every process that a test means to interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
