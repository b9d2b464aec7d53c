"""What a relay notes about itself while it works, so that ``health()`` can tell. Both kinds of relay keep one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..clock import Clock
from ..policy.health import Health, Vitals, judge

__all__ = ["Health", "Pulse"]


class Pulse:
    """Noted by the relay's own threads, read by any: each note is one assignment.

    ``quiet``: seconds after which a loop that does not move counts as stalled. The lease is the right figure: who does
    not move for so long has lost its work to others anyway.

    >>> from pillarbox.testing.clock import FakeClock
    >>> pulse = Pulse(60, FakeClock())
    >>> with pulse.running():
    ...     pulse.moved()
    ...     pulse.health(broker_reachable=True).ready
    True
    >>> pulse.health(broker_reachable=True).live
    False
    """

    def __init__(self, quiet: float, clock: Clock) -> None:
        self._quiet = quiet
        self._clock = clock
        self._running = False
        self._moved_at: float | None = None
        self._database = True

    @contextmanager
    def running(self) -> Iterator[None]:
        """For the length of ``run()``, however it ends."""
        self._running = True
        try:
            yield
        finally:
            self._running = False

    def moved(self, *, database: bool = True) -> None:
        """The loop went round; ``database`` False when the database did not answer this time."""
        self._database = database
        self._moved_at = self._clock.monotonic()

    def health(
        self,
        *,
        broker_reachable: bool,
        owned: int | None = None,
        entitled: int | None = None,
        details: Mapping[str, object] | None = None,
    ) -> Health:
        """The verdict now. ``owned`` and ``entitled`` are numbers of partitions, None for a row lease."""
        moved_ago = None if self._moved_at is None else self._clock.monotonic() - self._moved_at
        vitals = Vitals(self._running, moved_ago, self._database, broker_reachable, owned, entitled)
        shown = {
            "database_reachable": self._database,
            "broker_reachable": broker_reachable,
            "moved_seconds_ago": None if moved_ago is None else round(moved_ago, 3),
        }
        if owned is not None:
            shown |= {"partitions_owned": owned, "partitions_entitled": entitled}
        return judge(vitals, self._quiet, shown | dict(details or {}))
