"""Keeps leases alive while their events are in flight, on a thread and connection of its own.

Safety does not rest on it: a lease that could not be renewed is taken over, and the fenced settle is then refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from ..errors import PillarboxError
from ..ports import Claims, WorkKey
from .stats import RelayStats

log = logging.getLogger("pillarbox.relay")


class Renewer:
    """Renews what is held every ``lease / 3`` seconds."""

    def __init__(self, claims: Claims, lease: float, stats: RelayStats) -> None:
        self._claims = claims
        self._interval = lease / 3
        self._stats = stats
        self._lock = threading.Lock()
        self._held: dict[int, Sequence[WorkKey]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pillarbox-renewer", daemon=True)

    def start(self) -> None:
        """Begin renewing."""
        self._thread.start()

    def hold(self, token: int, keys: Sequence[WorkKey]) -> None:
        """These rows are in flight under ``token``."""
        with self._lock:
            self._held[token] = keys

    def drop(self, token: int) -> None:
        """They are settled, or given up."""
        with self._lock:
            self._held.pop(token, None)

    def stop(self) -> None:
        """End the thread; waits for a renewal that is under way."""
        self._stop.set()
        self._thread.join(timeout=self._interval)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            with self._lock:
                held = list(self._held.items())
            for token, keys in held:
                self._renew(token, keys)

    def _renew(self, token: int, keys: Sequence[WorkKey]) -> None:
        try:
            still = self._claims.renew(token, keys)
        except PillarboxError as error:
            self._stats.database_errors += 1
            log.warning("lease renewal failed, the claim may be taken over: %s", error)
            return
        self._stats.renewed += still
        with self._lock:
            current = self._held.get(token) is keys  # else they were settled meanwhile, and are rightly gone
        if current and still < len(keys):
            log.warning("%d of %d leases were lost before renewal (token %d)", len(keys) - still, len(keys), token)
