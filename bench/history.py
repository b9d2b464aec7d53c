"""Does a long history make the relay slower? The time of a read and of a settlement, with history and without.

Both have the same number of pending events, and the same cache to read them through.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

from bench import machine
from bench.bulk import Bulk, bulk
from bench.counters import per_event
from bench.drain import counted
from bench.job import OWNERSHIPS, Ownership
from bench.places import DATABASES, fresh_database, installed, server_of, tell
from bench.product import NullPublisher, make_relay
from bench.stopwatch import Stopwatch
from pillarbox.relay import RelaySettings


def add_parser(commands: Any) -> None:
    """``python -m bench history``."""
    parser: argparse.ArgumentParser = commands.add_parser("history", help="reads and settlements with a long history")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--ownership", choices=OWNERSHIPS, default="partition")
    parser.add_argument("--sent", type=int, default=200_000, help="events with a receipt")
    parser.add_argument("--pending", type=int, default=20_000, help="events that wait, in both cases")
    parser.add_argument("--measured", type=int, default=100_000, help="at most so many of them are sent")
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--payload", type=int, default=100, metavar="BYTES")
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds with and without, and rows examined for each event sent."""
    found = {name: one_case(options, sent) for name, sent in (("without", 0), ("with", options.sent))}
    before, after = found["without"]["milliseconds"], found["with"]["milliseconds"]
    return {
        "bench": "history",
        "database": options.database,
        "version": server_of(options.database).version,
        "ownership": options.ownership,
        "sent": options.sent,
        "pending": options.pending,
        "batch": options.batch,
        "payload_bytes": options.payload,
        **found,
        "ratio": {part: round(after[part] / before[part], 3) for part in before},
        # Filling takes minutes: what ran beside it when it began says nothing of what was measured.
        "machine": machine.facts() | {"busy_before": max(one["busy_before"] for one in found.values())},
    }


def one_case(options: argparse.Namespace, sent: int) -> dict[str, Any]:
    """Fill, then let a relay without a broker send some of the pending events."""
    with fresh_database(options.database) as url:
        installed(url)
        # The first relay of its kind switches the tables over to it, which looks once at every work row: do it now.
        drain(url, options.ownership, options.batch, LimitedWatch(0))
        start = time.monotonic()
        bulk(url, Bulk(sent, options.pending, "bench", options.payload))
        filled = time.monotonic() - start
        tell(f"{sent:,} sent and {options.pending:,} pending on {options.database}: {filled:.0f} s")
        watch = LimitedWatch(min(options.measured, options.pending))
        used = machine.busy()
        with counted(url) as (own, work):
            drain(own, options.ownership, options.batch, watch)
        return {
            "milliseconds": {part: round(median(found) * 1e3, 2) for part, found in watch.each.items()},
            "batches": len(watch.each["settle"]),
            "database_work_per_event": per_event(work, watch.events),
            "filled_in_seconds": round(filled),
            "busy_before": used,
        }


class LimitedWatch(Stopwatch):
    """Keeps the time of each full batch, and says when enough was sent."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.each: dict[str, list[float]] = {"take": [], "settle": []}
        self.stop: Any = None
        self._limit = limit

    def count(self, events: int) -> None:
        super().count(events)
        if self.events >= self._limit and self.stop is not None:
            self.stop()

    def added(self, part: str, seconds: float) -> None:
        if part in self.each and self.events < self._limit:
            self.each[part].append(seconds)


def drain(url: str, ownership: Ownership, batch: int, watch: LimitedWatch) -> None:
    """The product's relay until the watch has seen enough."""
    settings = RelaySettings(batch=batch)
    relay = make_relay(ownership, url, NullPublisher(), settings, watch=watch)
    watch.stop = relay.stop
    relay.run(until_empty=True)


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    counts = f"{summary['sent']:,} sent, {summary['pending']:,} pending"
    lines = [f"{summary['database']}, {counts}, batches of {summary['batch']}"]
    for name in ("without", "with"):
        found = summary[name]
        parts = "  ".join(f"{part} {took:.2f} ms" for part, took in found["milliseconds"].items())
        examined = found["database_work_per_event"].get("rows_examined", "?")
        lines.append(f"{name:8} history  {parts}  rows examined per event {examined}")
    return "\n".join([*lines, "ratio " + ", ".join(f"{part} {one:.2f}" for part, one in summary["ratio"].items())])
