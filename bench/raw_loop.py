"""The raw loop: what a good engineer writes by hand for these tables, without a library.

It does the same durable work as the product: the claim is committed before anything is sent, every message's own
acknowledgement is awaited, and one fenced transaction deletes the work rows and writes the receipts. It leaves out what
makes a product: failures of single messages, retries, several destinations, takeover, renewal. Any surprise ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from bench.stopwatch import Stopwatch

LEASE_SECONDS = 60
OWNER = "raw"

Position = tuple[int | None, int | None]
"""Broker partition and offset; RabbitMQ has neither."""


Row = tuple[Any, ...]
"""partition_no, id, event_id, event_type, schema_version, aggregate_type, aggregate_id, event_key, occurred_at as text,
headers, content_type, payload, destination, routing_key, and what else a server's settle needs: as the driver gives it.
"""


class RawDatabase(Protocol):
    """The statements of one server."""

    def claim(self, limit: int) -> Sequence[Row]:
        """Lease rows in one committed transaction and return them, laid out as Row."""
        ...

    def settle(self, rows: Sequence[Row], positions: Sequence[Position]) -> None:
        """Delete the work rows if they are still held, write their receipts, commit; RuntimeError if one was lost."""
        ...


class RawBroker(Protocol):
    """Pipelined sending to one broker."""

    def publish(self, rows: Sequence[Row]) -> Sequence[Position]:
        """Send all, wait for all; RuntimeError unless every one was confirmed."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


def drain(database: RawDatabase, broker: RawBroker, batch: int, watch: Stopwatch) -> None:
    """Claim, publish, settle, until nothing is left."""
    while True:
        with watch.measure("claim"):
            rows = database.claim(batch)
        if not rows:
            return
        with watch.measure("publish"):
            positions = broker.publish(rows)
        with watch.measure("settle"):
            database.settle(rows, positions)
        watch.events += len(rows)


def all_or_nothing(changed: int, expected: int) -> None:
    """The fence: fewer rows than claimed means that another owner took some over."""
    if changed != expected:
        raise RuntimeError(f"{expected - changed} of {expected} rows were lost to another owner")
