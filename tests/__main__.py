"""``python -m tests``: what ``make test`` runs.

Most tests wait for something most of the time, so several run at once, each with its own database, virtual host or
topic.
Tests that kill or freeze a shared server run after all others, alone. Arguments go to pytest.
"""

import os
import signal
import subprocess
import sys

WORKERS = os.environ.get("PILLARBOX_TEST_WORKERS", "3")
"""More than the two cores of a small machine: a test that waits for a lease uses none."""

NO_TESTS = 5  # pytest's exit status when nothing was collected
PHASES = [
    ["-n", WORKERS, "--dist", "worksteal", "-m", "not long and not fault"],
    ["-m", "fault and not long"],
]


def main(arguments: list[str]) -> int:
    """Run both phases, whatever the first one says; the worse status counts."""
    # A script's background job ignores Ctrl-C, and so would every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "pytest", "--durations=10"]
    statuses = [subprocess.run([*command, *phase, *arguments], check=False).returncode for phase in PHASES]
    ran = [status for status in statuses if status != NO_TESTS]
    return max(ran, key=abs) if ran else NO_TESTS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
