"""`pillarbox relay --processes N`: starts N relay processes, passes signals on, and starts again what died."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

from ...config import Config
from ...observe.lookout import Seen
from ...observe.server import Address, serving
from ...observe.snapshot import Snapshot
from ..exit_codes import ExitCode
from ..signals import run_until_signalled
from .child import order
from .crew import Crew
from .here import Ended, together
from .place import Place
from .plan import planned
from .restarts import Restarts

log = logging.getLogger("pillarbox.cli")

DEATHS: Final = 5
"""A process that dies so often in a row, each time within a minute, is not started again: all end."""

_HOPELESS: Final = frozenset({ExitCode.USAGE, ExitCode.CONFIG, ExitCode.TABLES, ExitCode.REFUSED})
"""What no restart mends."""

_BY_WEIGHT: Final = (
    ExitCode.OK,
    ExitCode.INTERRUPTED,
    ExitCode.FAILED,
    ExitCode.UNAVAILABLE,
    ExitCode.REFUSED,
    ExitCode.TABLES,
    ExitCode.CONFIG,
    ExitCode.USAGE,
)

_LOOK: Final = 0.1  # seconds between looks at the processes
_GRACE: Final = 5.0  # seconds beyond the children's own deadline


def worst(codes: Sequence[int]) -> ExitCode:
    """The heaviest of several exit codes; a death by signal or an unknown code counts as FAILED.

    >>> worst([0, 4, -9]).name
    'UNAVAILABLE'
    """
    known = [ExitCode(code) if code in list(ExitCode) else ExitCode.FAILED for code in codes]
    return max(known, key=_BY_WEIGHT.index, default=ExitCode.OK)


class Parent:
    """The processes, as a Source for the endpoints and as one thing to run and stop."""

    def __init__(
        self,
        config: Config,
        *,
        until_empty: bool,
        timeout: float | None,
        database_given: bool,
        spawn: Callable[[], subprocess.Popen[bytes]] | None = None,
        restarts: Callable[[], Restarts] = lambda: Restarts(limit=DEATHS),
    ) -> None:
        self._until_empty = until_empty
        self._spawn = spawn or _spawn
        # Never run: it knows the outboxes, refuses settings that cannot work, and looks at the backlogs when scraped.
        self._outboxes = Crew(planned(config, database_given=database_given))
        self.places = [
            Place(
                process,
                order(config, process, until_empty=until_empty, timeout=timeout, database_given=database_given),
                config.relay.lease,
                restarts(),
            )
            for process in range(config.relay.processes)
        ]
        self._stopping = threading.Event()

    def run(self) -> None:
        """Until every process has ended for good."""
        for place in self.places:
            place.start(self._spawn)
        while any(place.is_open for place in self.places):
            for place in self.places:
                code = place.ended()
                if code is not None:
                    self._after(place, code)
                place.start_if_due(self._spawn)
            time.sleep(_LOOK)

    def stop(self) -> None:
        """Ask each for its end, once: a second signal would make it leave at once."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Pass it on to those that live."""
        for place in self.places:
            place.close()
            place.signal(number)

    def code(self) -> ExitCode:
        """The worst of what ended."""
        return worst([place.code for place in self.places])

    def reports(self) -> list[dict[str, Any]]:
        """What the processes said at their end."""
        return [{"process": place.process, **place.report} for place in self.places if place.report]

    def snapshots(self) -> Sequence[Snapshot]:
        outboxes = [unit.planned.outbox for unit in self._outboxes.units]
        return [snapshot for place in self.places for snapshot in place.snapshots(outboxes)]

    def backlogs(self) -> Mapping[str, Seen]:
        return self._outboxes.backlogs()

    def _after(self, place: Place, code: int) -> None:
        if self._stopping.is_set() or self._until_empty:
            place.close()
            return
        hopeless = code in _HOPELESS
        pause = None if hopeless else place.plan_restart()
        if pause is None:
            why = "no restart would help" if hopeless else "it died too often in a row"
            log.error("relay process %d ended with %d, %s: ending all", place.process, code, why)
            self.stop()
            return
        log.warning("relay process %d ended with %d, is started again in %g s", place.process, code, pause)


def run_processes(
    config: Config, *, until_empty: bool, timeout: float | None, http: Address | None, database_given: bool
) -> Ended:
    """Blocks until all have ended; the code is the worst of theirs."""
    parent = Parent(config, until_empty=until_empty, timeout=timeout, database_given=database_given)
    with serving(http, parent) if http else nullcontext():
        deadline = config.relay.stop_deadline + _GRACE
        run_until_signalled(parent.run, parent.stop, deadline, leaving=parent.signal)
    reports = parent.reports()
    # Each process has counted the whole outbox.
    left = {"left": max((one["left"] for one in reports if "left" in one), default=0)} if until_empty else {}
    return Ended(parent.code(), together(reports) | left)


def _spawn() -> subprocess.Popen[bytes]:
    """A new interpreter, not a fork: the parent may have threads, and broker clients do not survive one."""
    return subprocess.Popen(
        [sys.executable, "-m", "pillarbox.cli.relays.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
