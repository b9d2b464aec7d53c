"""The product's side: its store, relay and publisher as users run them; for a drain, timed at the ports."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Protocol

from bench.job import Job, Ownership
from bench.stopwatch import Stopwatch
from pillarbox.event.message import Message
from pillarbox.ports import BeginsInOrder, Claim, Confirmed, Outcome, Publisher, PublisherCapabilities, UnderWay
from pillarbox.publish.registry import make_publisher
from pillarbox.relay import RelaySettings
from pillarbox.store.engines import relay_engine

RELAY_ID: Final = "bench"


class AnyRelay(Protocol):
    """What both kinds of relay have in common."""

    stats: Any

    def run(self, *, until_empty: bool = False) -> None: ...

    def stop(self) -> None: ...

    def nudge(self) -> None: ...


def run(job: Job, watch: Stopwatch) -> None:
    """Drain until nothing is left; RuntimeError if any event was not simply sent."""
    settings = RelaySettings(batch=job.batch)
    publisher = timed(open_publisher(job.broker, settings.broker_deadline), watch)
    relay = make_relay(job.ownership, job.database, publisher, settings, watch=watch)
    gc.freeze()  # as `pillarbox relay` does
    relay.run(until_empty=True)
    if relay.stats.sent != relay.stats.claimed:
        raise RuntimeError(f"not every event was sent: {relay.stats.as_dict()}")


def make_relay(
    ownership: Ownership,
    database: str,
    publisher: Any,
    settings: RelaySettings,
    *,
    relay_id: str = RELAY_ID,
    watch: Stopwatch | None = None,
) -> AnyRelay:
    """A relay that is ready to run."""
    engine = relay_engine(database)
    if ownership == "row":
        from pillarbox.relay import Relay
        from pillarbox.store.rowlease import RowLeaseStore

        rows = RowLeaseStore(engine, relay_id=relay_id, lease=settings.lease)
        return Relay(rows if watch is None else TimedStore(rows, watch), publisher, settings)
    from pillarbox.relay.ordered import OrderedRelay
    from pillarbox.store.ordered import PartitionStore

    partitions = PartitionStore(engine, relay_id=relay_id, lease=settings.lease)
    return OrderedRelay(partitions if watch is None else TimedStore(partitions, watch), publisher, settings)


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

    publish_in_order = publish

    def close(self) -> None:
        """Nothing to end."""


class TimedStore:
    """A store of either kind that is measured: what takes work out, and what settles it."""

    def __init__(self, store: Any, watch: Stopwatch) -> None:
        self._store = store
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, limit: int) -> Claim:
        with self._watch.measure("take"):
            claim: Claim = self._store.claim(limit)
        return claim

    def read(self, *arguments: Any, **named: Any) -> Any:
        with self._watch.measure("take"):
            return self._store.read(*arguments, **named)

    def settle(self, settlement: Any) -> Any:
        with self._watch.measure("settle"):
            settled = self._store.settle(settlement)
        self._watch.count(settled.sent)
        return settled


class TimedPublisher:
    """A Publisher that is measured."""

    def __init__(self, publisher: Any, watch: Stopwatch) -> None:
        self._publisher = publisher
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publisher, name)

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        with self._watch.measure("publish"):
            return self._publisher.publish(messages)

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        with self._watch.measure("publish"):
            return self._publisher.publish_in_order(messages)


class TimedAheadPublisher(TimedPublisher):
    """One that has the next batch while it waits for the one before: the time in which its thread does nothing else."""

    def begin_in_order(self, messages: Sequence[Message]) -> UnderWay:
        with self._watch.measure("publish"):
            wait = self._publisher.begin_in_order(messages)
        return partial(self._wait, wait)

    def _wait(self, wait: UnderWay, seconds: float) -> list[Outcome] | None:
        with self._watch.measure("publish"):
            return wait(seconds)


def timed(publisher: Publisher, watch: Stopwatch) -> TimedPublisher:
    """Measured, with the same methods."""
    return (TimedAheadPublisher if isinstance(publisher, BeginsInOrder) else TimedPublisher)(publisher, watch)
