"""Keeps the relay registered and its leases alive, on a thread and connection of its own.

Safety does not rest on it: a lease that could not be renewed is taken over, and the fenced settlement is then refused.
It only tells the relay when to hand out nothing more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from ...errors import DatabaseUnavailable
from ...ports import Ownership, Tenure
from ..stats import RelayStats

log = logging.getLogger("pillarbox.relay")


class Keeper:
    """Renews every ``lease / 3`` seconds, and at once when asked to."""

    def __init__(self, store: Ownership, lease: float, monotonic: Callable[[], float], stats: RelayStats) -> None:
        self._store = store
        self._lease = lease
        self._monotonic = monotonic
        self._stats = stats
        self._lock = threading.Lock()
        self._held: tuple[Tenure, ...] = ()
        self._lost: list[Tenure] = []
        self._error: BaseException | None = None
        self._renewed_at = monotonic()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="pillarbox-keeper", daemon=True)

    def start(self) -> None:
        """Begin; the relay has just registered."""
        self._renewed_at = self._monotonic()
        self._thread.start()

    def hold(self, tenures: Sequence[Tenure]) -> None:
        """These are owned now, and no others."""
        with self._lock:
            self._held = tuple(tenures)

    def take_lost(self) -> list[Tenure]:
        """Those that were found lost since the last call. Raises what ended the thread: no lease is renewed any more.

        That is LeaseMismatch, say, when another kind of relay has taken over.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            lost, self._lost = self._lost, []
        return lost

    def is_sure_since(self, moment: float) -> bool:
        """True when a renewal that began after ``moment`` succeeded."""
        return self._renewed_at > moment

    @property
    def may_hand_out(self) -> bool:
        """False when no renewal has succeeded for two thirds of the lease: others may own the partitions soon."""
        return self._monotonic() - self._renewed_at < self._lease * 2 / 3

    def renew_now(self) -> None:
        """Do not wait for the next third of the lease."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; waits for a renewal that is under way."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self._lease)

    def _run(self) -> None:
        pause = self._lease / 3
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._stopping:
                return
            try:
                pause = self._lease / 3 if self._renew() else min(1.0, self._lease / 10)
            except BaseException as error:  # noqa: BLE001 - raised again in the relay's own thread, by take_lost()
                with self._lock:
                    self._error = error
                return

    def _renew(self) -> bool:
        began, held = self._monotonic(), self._held
        try:
            lost = self._store.stay(self._lease, held)
        except DatabaseUnavailable as error:
            self._stats.database_errors += 1
            log.warning("leases could not be renewed, they may be taken over: %s", error)
            return False
        with self._lock:
            self._lost.extend(lost)
            self._renewed_at = began
        self._stats.renewed += len(held) - len(lost)
        return True
