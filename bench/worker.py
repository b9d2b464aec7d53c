"""One side of one round, in a process of its own: reads a job on standard input, prints its figures."""

from __future__ import annotations

import cProfile
import io
import json
import pstats
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from bench.job import Figures, Job
from bench.machine import rss_mib
from bench.stopwatch import Stopwatch

CHECKOUT = Path(__file__).resolve().parent.parent
TIMEOUT = 600  # seconds for one drain
LINES = 30  # of the profile


def measure(job: Job) -> Figures:
    """Run ``job`` in a new process, so that neither side inherits the other's imports, caches or garbage."""
    command = [sys.executable, "-m", "bench.worker"]
    told = json.dumps(asdict(job))
    done = subprocess.run(
        command, input=told, capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=CHECKOUT
    )
    if done.returncode:
        raise RuntimeError(f"the {job.side} side failed:\n{done.stderr}")
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def work(job: Job) -> Figures:
    """Run ``job`` here. Only the chosen side is imported."""
    if job.side == "product":
        from bench.product import run
    else:
        from bench.raw import run
    watch = Stopwatch()
    if not job.profile:
        run(job, watch)
        return replace(watch.figures(), rss_mib=rss_mib(peak=True))
    profiler = cProfile.Profile()
    profiler.runcall(run, job, watch)
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(LINES)
    return watch.figures(text.getvalue())


if __name__ == "__main__":
    print(json.dumps(asdict(work(Job(**json.load(sys.stdin))))))
