"""What a consumer has done so far, as numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class ConsumerStats:
    """Counters since the consumer was made. Any thread may read them.

    ``received`` counts deliveries. Each ends as ``applied`` (handlers ran and committed), ``duplicates`` (the inbox had
    it), ``unhandled`` (no handler for its type), ``skipped`` (no event at all), ``discarded`` (its error is of a class
    to drop), ``dead`` (set aside) or ``dropped`` (the broker took it back), or stays unfinished at a stop.
    ``acknowledged`` counts what the broker was told. ``retried`` counts failed attempts that were tried again,
    ``database_away`` the waits for the database, ``broker_away`` failures of the broker, ``split`` the batches that
    failed and were applied event by event, ``timeouts`` the handlers that were interrupted.
    """

    received: int = 0
    applied: int = 0
    duplicates: int = 0
    unhandled: int = 0
    skipped: int = 0
    discarded: int = 0
    dead: int = 0
    dropped: int = 0
    acknowledged: int = 0
    retried: int = 0
    database_away: int = 0
    broker_away: int = 0
    split: int = 0
    timeouts: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)

    def plus(self, other: ConsumerStats) -> ConsumerStats:
        """The sums."""
        more = other.as_dict()
        return ConsumerStats(**{name: number + more[name] for name, number in self.as_dict().items()})
