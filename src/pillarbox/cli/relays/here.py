"""Runs the relays of this process until they are empty or told to stop, and says how it went."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from ...observe.server import Address, serving
from ..exit_codes import ExitCode
from ..signals import run_until_signalled
from .crew import Crew

log = logging.getLogger("pillarbox.relay")

PATIENCE = 60.0
"""Seconds that a relay waits for a broker that is away, when it was told to end and not when."""


class Ended(NamedTuple):
    """The exit code, and what `--json` prints."""

    code: ExitCode
    report: dict[str, Any]


def run_here(
    crew: Crew, *, until_empty: bool, timeout: float | None, stop_deadline: float, http: Address | None = None
) -> Ended:
    """Blocks. Raises what a relay that is alone raised."""
    with serving(http, crew) if http else nullcontext(), _timer(timeout, crew.stop) as timed_out:
        patience = PATIENCE if until_empty and timeout is None else None
        run_until_signalled(lambda: crew.run(until_empty=until_empty, patience=patience), crew.stop, stop_deadline)
    relays = [_report(crew, index, until_empty) for index in range(len(crew.units))]
    report = relays[0] if len(relays) == 1 else together(relays)
    if not until_empty:
        return Ended(ExitCode.OK, report)
    if timed_out.is_set():
        return Ended(ExitCode.UNAVAILABLE, report)
    return Ended(ExitCode.FAILED if report["left"] or report.get("dead") else ExitCode.OK, report)


def together(relays: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over several relays, and each one's own figures under ``relays``."""
    total: Counter[str] = Counter()
    for one in relays:
        total.update({name: value for name, value in one.items() if isinstance(value, int) and name != "process"})
    return {**total, "relays": relays}


def _report(crew: Crew, index: int, until_empty: bool) -> dict[str, Any]:
    unit = crew.units[index]
    planned, counters = unit.planned, unit.counters()
    said = ", ".join(f"{name} {n}" for name, n in counters.items() if n)
    log.info("relay %s ended: %s", planned.relay_id, said or "nothing to do")
    where = {"outbox": planned.outbox} if len(crew.units) > 1 else {}
    left = {"left": unit.left()} if until_empty else {}
    return {"relay": planned.relay_id, **where, **counters, **left}


@contextmanager
def _timer(seconds: float | None, stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Call ``stop`` after ``seconds``, if any; the event tells whether it came to that."""
    rang = threading.Event()
    if seconds is None:
        yield rang
        return

    def ring() -> None:
        rang.set()
        stop()

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield rang
    finally:
        timer.cancel()
