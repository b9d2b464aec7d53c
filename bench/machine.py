"""What a figure was measured on: a figure without its machine, and what else that had to do, says little."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("SQLAlchemy", "PyMySQL", "psycopg", "confluent-kafka", "pika")


def facts() -> dict[str, Any]:
    """Processor, memory, kernel and versions."""
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(int((_first("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 2**20, 1),
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_average": load(),
    }


def load() -> list[float]:
    """Processes that ran or waited for a processor, over 1, 5 and 15 minutes."""
    return [round(one, 2) for one in os.getloadavg()]


def busy(seconds: float = 0.5) -> float:
    """The share of all cores' time that was not idle, measured now; the load average lags behind."""
    before, all_before = _ticks()
    time.sleep(seconds)
    after, all_after = _ticks()
    return round((after - before) / max(all_after - all_before, 1), 3)


def _ticks() -> tuple[int, int]:
    """Ticks that were worked, taken by the host (steal) included, and all ticks, since the machine started."""
    ticks = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def rss_mib(pid: int | str = "self", *, peak: bool = False) -> float:
    """Resident memory of a process, in MiB; 0 where it cannot be told."""
    found = _first(f"/proc/{pid}/status", "VmHWM" if peak else "VmRSS")
    return round(int(found.split()[0]) / 1024, 1) if found else 0.0


def reset_peak(pid: int) -> None:
    """Make the peak of a process begin anew (Linux)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _first(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
