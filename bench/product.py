"""The product's side of a drain: its store, relay and publisher as users run them, timed at the ports."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Final

from bench.job import Job
from bench.stopwatch import Stopwatch
from pillarbox.event.message import Message
from pillarbox.ports import Claim, Confirmed, Outcome, Publisher, PublisherCapabilities, Settled, Settlement
from pillarbox.publish.registry import make_publisher
from pillarbox.relay import Relay, RelaySettings
from pillarbox.store.engines import relay_engine
from pillarbox.store.rowlease import RowLeaseStore

RELAY_ID: Final = "bench"


def run(job: Job, watch: Stopwatch) -> None:
    """Drain until nothing is left; RuntimeError if any event was not simply sent."""
    settings = RelaySettings(batch=job.batch)
    store = RowLeaseStore(relay_engine(job.database), relay_id=RELAY_ID, lease=settings.lease)
    publisher = open_publisher(job.broker, settings.broker_deadline)
    relay = Relay(TimedStore(store, watch), TimedPublisher(publisher, watch), settings)
    gc.freeze()  # as `pillarbox relay` does
    relay.run(until_empty=True)
    if relay.stats.sent != relay.stats.claimed:
        raise RuntimeError(f"not every event was sent: {relay.stats.as_dict()}")


def open_publisher(url: str, deadline: float) -> Publisher:
    """The real one for its URL, or one that confirms at once."""
    return NullPublisher() if url.startswith("null:") else make_publisher(url, deadline=deadline)


class NullPublisher:
    """No broker: what the database's part of the relay costs."""

    capabilities = PublisherCapabilities("null", pipelined_order=True, positions=True, headers=True)

    def open(self) -> None:
        """Nothing to connect to."""

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        return [Confirmed(0, offset) for offset in range(len(messages))]

    def close(self) -> None:
        """Nothing to end."""


class TimedStore:
    """A WorkStore that is measured."""

    def __init__(self, store: RowLeaseStore, watch: Stopwatch) -> None:
        self.relay_id = store.relay_id
        self.renew = store.renew
        self.move_due = store.move_due
        self.close = store.close
        self._store = store
        self._watch = watch

    def claim(self, limit: int) -> Claim:
        with self._watch.measure("claim"):
            return self._store.claim(limit)

    def settle(self, settlement: Settlement) -> Settled:
        with self._watch.measure("settle"):
            settled = self._store.settle(settlement)
        self._watch.events += settled.sent
        return settled


class TimedPublisher:
    """A Publisher that is measured."""

    def __init__(self, publisher: Publisher, watch: Stopwatch) -> None:
        self.capabilities = publisher.capabilities
        self.open = publisher.open
        self.close = publisher.close
        self._publisher = publisher
        self._watch = watch

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        with self._watch.measure("publish"):
            return self._publisher.publish(messages)
