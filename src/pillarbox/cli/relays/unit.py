"""One outbox's relay in this process: built, run, started again when it may be, and shown."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ...errors import PillarboxError
from ...masking import mask_whole_url
from ...observe.lookout import Lookout
from ...observe.metrics import NO_COUNTERS
from ...observe.snapshot import Snapshot, not_running
from ...ports import Backlog
from ...store.backlog import backlog
from ...store.wakeup import listening
from ...wiring import broker_url, build_relay, database_url, open_tables
from .plan import Planned
from .pruning import Pruned, pruning
from .restarts import Restarts

log = logging.getLogger("pillarbox.relay")


class Unit:
    """Runs one planned relay. ``patient``: its errors are logged and it is started again, so that others go on."""

    def __init__(self, planned: Planned, *, patient: bool) -> None:
        self.planned = planned
        self.lookout = Lookout(self._look)
        self._patient = patient
        self._restarts = Restarts()
        self._relay: Any = None
        self._lock = threading.Lock()
        self._past: Counter[str] = Counter()
        self._pruned = Pruned()
        self._why = "the relay has only begun"
        self._stop = threading.Event()

    def run(self, *, until_empty: bool, patience: float | None = None) -> None:
        """Until it is empty or stopped. Raises what went wrong, unless patient.

        ``patience``: seconds that it waits for a broker that is away; None waits for ever.
        """
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._run_once(until_empty, patience)
                return
            except Exception as error:
                if not self._patient or until_empty:
                    raise
                self._tell(error)
            pause = self._restarts.after(time.monotonic() - began)
            assert pause is not None  # without a limit
            self._stop.wait(pause)

    def stop(self) -> None:
        """Finish what is in flight, begin nothing more. Safe from any thread."""
        self._stop.set()
        relay = self._relay
        if relay is not None:
            relay.stop()

    def snapshot(self) -> Snapshot:
        """What it looks like now."""
        relay, planned = self._relay, self.planned
        if relay is None:
            found = not_running(planned.process, planned.outbox, planned.relay_id, self._why, self._restarts.total)
            return found._replace(counters=self.counters())
        return Snapshot(
            planned.process,
            planned.outbox,
            planned.relay_id,
            self.counters(),
            relay.health(),
            self._restarts.total,
        )

    def counters(self) -> dict[str, int]:
        """Since the process began, restarts included."""
        with self._lock:
            now = Counter(self._past)
            if self._relay is not None:
                now.update(_counted(self._relay))
        if self.planned.config.retention.by_relay:
            now["pruned"] = self._pruned.events
        return dict(now)

    def left(self) -> int:
        """How many deliveries are neither sent nor given up."""
        from ...ops.overview import overview

        with open_tables(self.planned.config) as tables:
            return tables.read(overview).waiting

    def _run_once(self, until_empty: bool, patience: float | None) -> None:
        config, name = self.planned.config, self.planned.relay_id
        with build_relay(config, name) as relay, self._known(relay):
            prefix = f" ({config.table_prefix}…)" if config.table_prefix else ""
            place = mask_whole_url(database_url(config)) + prefix
            log.info("relay %s: %s to %s", name, place, mask_whole_url(broker_url(config)))
            gc.freeze()  # what is loaded by now stays for good: the collector need not walk it batch after batch
            url, listens = database_url(config), config.relay.listen
            waking = listening(url, relay.nudge, table_prefix=config.table_prefix) if listens else nullcontext()
            with waking, nullcontext() if until_empty else pruning(config, self._pruned):
                relay.run(until_empty=until_empty, patience=patience)

    @contextmanager
    def _known(self, relay: Any) -> Iterator[None]:
        """Between being built and having ended; a stop that came in between is not forgotten."""
        self._relay = relay
        if self._stop.is_set():
            relay.stop()
        try:
            yield
        finally:
            self._why = "the relay has ended"
            with self._lock:  # whoever reads the counters sees them once, here or there
                self._past.update(_counted(relay))
                self._relay = None

    def _tell(self, error: Exception) -> None:
        where = f"outbox {self.planned.outbox}"
        if isinstance(error, PillarboxError):
            self._why = f"it is started again after [{error.code}]"
            log.error("%s: the relay ended and is started again: %s", where, error)
        else:
            self._why = f"it is started again after {type(error).__name__}"
            log.exception("%s: the relay ended with an error of ours and is started again", where)

    def _look(self) -> Backlog:
        with open_tables(self.planned.config) as tables:
            return tables.read(backlog)


def _counted(relay: Any) -> dict[str, int]:
    return {name: value for name, value in relay.stats.as_dict().items() if name not in NO_COUNTERS}
