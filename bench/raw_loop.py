"""The raw loop: what a good engineer writes by hand for these tables, without a library.

It does the same durable work as the product: what is taken is committed before anything is sent, every message's own
acknowledgement is awaited, and one fenced transaction deletes the work rows and writes the receipts. While the broker
works on one batch, the one before it is settled and the next one is read. It leaves out what makes a product: failures
of single messages, retries, holds, several destinations, takeover, renewal. Any surprise ends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from bench.stopwatch import Stopwatch

LEASE_SECONDS = 60
OWNER = "raw"

Position = tuple[int | None, int | None]
"""Broker partition and offset; RabbitMQ has neither."""


Row = tuple[Any, ...]
"""partition_no, id, event_id, event_type, schema_version, aggregate_type, aggregate_id, event_key, occurred_at as text,
headers, content_type, payload, destination, routing_key, and what else a server's settle needs: as the driver gives it.
"""


class Taken(NamedTuple):
    """Rows to send, and what the database needs to settle them."""

    rows: Sequence[Row]
    ticket: Any = None


class RawDatabase(Protocol):
    """The statements of one server, for one way of owning work."""

    def take(self, limit: int) -> Taken:
        """Rows that are this loop's to send, committed, laid out as Row; none: there is nothing."""
        ...

    def settle(self, taken: Taken, positions: Sequence[Position]) -> None:
        """Delete the work rows if they are still held, write their receipts, commit; RuntimeError if one was lost."""
        ...


class RawBroker(Protocol):
    """Pipelined sending to one broker. At most one batch is on its way."""

    def start(self, rows: Sequence[Row]) -> None:
        """Hand all over; the client sends them in the background."""
        ...

    def finish(self) -> Sequence[Position]:
        """Wait for all; RuntimeError unless every one was confirmed."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class OneAtATime:
    """Each message is confirmed before the next one is sent: how one orders a single key by hand."""

    def __init__(self, broker: RawBroker) -> None:
        self._broker = broker
        self._rows: Sequence[Row] = ()
        self.close = broker.close

    def start(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def finish(self) -> Sequence[Position]:
        return [self._send(row) for row in self._rows]

    def _send(self, row: Row) -> Position:
        self._broker.start((row,))
        return self._broker.finish()[0]


def drain(database: RawDatabase, broker: RawBroker, batch: int, watch: Stopwatch) -> None:
    """Until nothing is left: send one batch, meanwhile settle the one before it and take the next."""
    before: tuple[Taken, Sequence[Position]] | None = None
    taken = _take(database, batch, watch)
    while taken.rows:
        with watch.measure("publish"):
            broker.start(taken.rows)
        _settle(database, before, watch)
        following = _take(database, batch, watch)
        with watch.measure("publish"):
            before = (taken, broker.finish())
        taken = following
    _settle(database, before, watch)


def follow(database: RawDatabase, broker: RawBroker, batch: int, poll: float, stop: threading.Event) -> int:
    """Until ``stop``: take, send, settle at once, and wait ``poll`` seconds when there was nothing. Returns the events.

    For a trickle: what one more event would gain by overlapping, the settlement of the one before would lose.
    """
    sent = 0
    while not stop.is_set():
        taken = database.take(batch)
        if not taken.rows:
            time.sleep(poll)
            continue
        broker.start(taken.rows)
        database.settle(taken, broker.finish())
        sent += len(taken.rows)
    return sent


def all_or_nothing(changed: int, expected: int) -> None:
    """The fence: fewer rows than taken means that another owner took some over."""
    if changed != expected:
        raise RuntimeError(f"{expected - changed} of {expected} rows were lost to another owner")


def _take(database: RawDatabase, batch: int, watch: Stopwatch) -> Taken:
    with watch.measure("take"):
        return database.take(batch)


def _settle(database: RawDatabase, done: tuple[Taken, Sequence[Position]] | None, watch: Stopwatch) -> None:
    if done is None:
        return
    with watch.measure("settle"):
        database.settle(*done)
    watch.count(len(done[0].rows))
