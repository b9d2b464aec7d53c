"""What every kind of relay has in common: running, stopping, being woken, waiting for a broker that is away."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from ..clock import Clock, SystemClock
from ..errors import BrokerUnavailable, DatabaseUnavailable, UsedAfterFork
from ..policy.breaker import Breaker
from ..ports import Publisher
from .health import Health, Pulse
from .settings import RelaySettings
from .stats import RelayStats

log = logging.getLogger("pillarbox.relay")


class Lifecycle:
    """Base of the relays. ``run()`` blocks until ``stop()``; ``started()`` runs it on a thread of its own."""

    def __init__(self, publisher: Publisher, settings: RelaySettings, clock: Clock | None) -> None:
        self.settings = settings
        self.stats = RelayStats()
        self._publisher = publisher
        self._clock = clock or SystemClock()
        self._breaker = Breaker(settings.probe_interval)
        self._wake = threading.Event()
        self._stopping = False
        self._patience: float | None = None
        self._pulse = Pulse(settings.lease, self._clock)
        self._pid = os.getpid()

    def run(self, *, until_empty: bool = False, patience: float | None = None) -> None:
        """Work until ``stop()`` is called; with ``until_empty``, until nothing is ready.

        A broker or database that goes away is waited for; a broker for ``patience`` seconds at most, if given, and then
        BrokerUnavailable (PB-005) is raised. Raises what opening the publisher raises when it is refused
        (AccessRefused, MissingDriver, BadUrl), and TablesMissing, SchemaMismatch or LeaseMismatch from the store.
        """
        self._check_process()
        self._patience = patience
        with self._pulse.running():
            self._open_publisher()
            self._run(until_empty)

    def stop(self) -> None:
        """Ask for the end: what is in flight is finished (at most the broker deadline), nothing new is begun.

        Safe from signal handlers and other threads.
        """
        self._stopping = True
        self._wake.set()

    def nudge(self) -> None:
        """There is something new: look now instead of at the end of the pause. Safe from any thread."""
        self._check_process()
        self._wake.set()

    @property
    def broker_reachable(self) -> bool:
        """False while the breaker is open."""
        return not self._breaker.is_open

    def health(self) -> Health:
        """Whether it lives, and whether it delivers now. Costs nothing and asks nobody; safe from other threads."""
        self._check_process()
        return self._pulse.health(broker_reachable=self.broker_reachable)

    @contextmanager
    def started(self) -> Iterator[Self]:
        """Run on a thread for the length of a ``with`` block; leaving it stops and joins."""
        self._check_process()
        thread = threading.Thread(target=self.run, name="pillarbox-relay", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stop()
            thread.join(self.settings.broker_deadline + 10)

    # For the relays -----------------------------------------------------------------------------------------------

    def _run(self, until_empty: bool) -> None:
        raise NotImplementedError

    def _open_publisher(self) -> None:
        try:
            self._publisher.open()
        except BrokerUnavailable as error:
            # An outage must not make relays crash in a loop: start, and let the breaker probe.
            self._breaker.trouble(self._clock.monotonic())
            self.stats.outages += 1
            log.warning("broker out of reach at start, waiting for it: %s", error)

    def _check_patience(self) -> None:
        away = self._breaker.away_for(self._clock.monotonic())
        if self._patience is not None and away >= self._patience:
            raise BrokerUnavailable(
                f"The broker has been out of reach for {away:.0f} s; what is left waits in the outbox, uncharged.",
                fix="Check that it runs and that its URL is right, then run the command again.",
            )

    def _patiently(self, work: Callable[[], None]) -> bool:
        """Repeat while the database is out of reach. Returns False when the relay was stopped before it worked."""
        while not self._stopping:
            try:
                work()
            except DatabaseUnavailable as error:
                self.stats.database_errors += 1
                self._pulse.moved(database=False)
                log.warning("database out of reach, trying again: %s", error)
                self._rest(self.settings.probe_interval)
            else:
                self._pulse.moved()
                return True
        return False

    def _rest(self, seconds: float) -> None:
        self._wake.wait(seconds)
        if not self._stopping:
            self._wake.clear()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise UsedAfterFork(
                f"This relay was made in process {self._pid}, this is process {os.getpid()}.",
                fix="Make and start the relay in the worker, after the fork: each worker then runs one relay more.",
            )
