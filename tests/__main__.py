"""``python -m tests``: what ``make test`` runs.

Most tests wait for something most of the time, so several run at once, each with its own database, virtual host or
topic. A few that fail side by side are run again alone, and that is said: on two busy cores a deadline can be missed
for no fault of the code; what fails alone as well has failed. Tests that kill or freeze a shared server run after all
others, in two lanes side by side: those that break Kafka, and those that break another server. In a lane nothing runs
beside them; the few that fail are run once more as well. Arguments go to pytest.
"""

import os
import signal
import subprocess
import sys
import threading

WORKERS = os.environ.get("PILLARBOX_TEST_WORKERS", "4")
"""Twice the two cores of a small machine: most of its time a test waits for a lease, a group or a server's disk."""

AGAIN = 5
"""How many tests may be run again; more have not failed by chance."""

TESTS_FAILED, NO_TESTS = 1, 5  # pytest's exit statuses
SIDE_BY_SIDE = ["-n", WORKERS, "--dist", "worksteal", "--maxfail", "50"]
FAILED_ONES_ALONE = ["--last-failed", "--last-failed-no-failures", "none"]


def main(arguments: list[str]) -> int:
    """Run all kinds, whatever the first one says; the worst status counts."""
    statuses = [Run("not long and not fault", SIDE_BY_SIDE).status(arguments)]
    kafka = Run("fault and kafka and not long", ["-o", "cache_dir=.pytest_cache/kafka"])
    others = Run("fault and not kafka and not long", ["-o", "cache_dir=.pytest_cache/others"], shown_at_the_end=True)
    lanes = [threading.Thread(target=lambda run=run: statuses.append(run.status(arguments))) for run in (kafka, others)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    others.show()
    ran = [status for status in statuses if status != NO_TESTS]
    return max(ran, key=abs) if ran else NO_TESTS


class Run:
    """The tests with these marks, and the few that failed once more."""

    def __init__(self, marks: str, how: list[str], *, shown_at_the_end: bool = False) -> None:
        self._marks, self._how = marks, how
        self._cache = [part for part in how if part == "-o" or part.startswith("cache_dir")]
        self._later: list[str] | None = [] if shown_at_the_end else None

    def status(self, arguments: list[str]) -> int:
        status = self._pytest(*self._how, "-m", self._marks, *arguments)
        if status == TESTS_FAILED and 0 < (failed := self._failed(arguments)) <= AGAIN:
            self._say(f"== {failed} failed: run again alone\n")
            again = [*FAILED_ONES_ALONE, "--maxfail", str(AGAIN), *self._cache]
            status = self._pytest(*again, "-m", self._marks, *arguments)
        return status

    def show(self) -> None:
        """What it has said, if it was to be silent until now."""
        print("".join(self._later or ()), end="", flush=True)

    def _failed(self, arguments: list[str]) -> int:
        chosen = [*FAILED_ONES_ALONE, *self._cache, "-m", self._marks, *arguments]
        listing = [sys.executable, "-m", "pytest", "--collect-only", "-q", *chosen]
        found = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
        return sum(1 for line in found.splitlines() if "::" in line)

    def _pytest(self, *arguments: str) -> int:
        command = [sys.executable, "-m", "pytest", "--durations=10", *arguments]
        if self._later is None:
            return subprocess.run(command, check=False).returncode
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self._later.append(done.stdout)
        return done.returncode

    def _say(self, text: str) -> None:
        if self._later is None:
            print(text, end="", flush=True)
        else:
            self._later.append(text)


if __name__ == "__main__":
    # A background job starts with SIGINT ignored, and so would every process that a test means to interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
