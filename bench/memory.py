"""How much memory a relay needs, with a large backlog or with large events. Resident set of its process, in MiB."""

from __future__ import annotations

import argparse
import time
from typing import Any

from bench import machine
from bench.bulk import Bulk, bulk
from bench.child import started
from bench.job import OWNERSHIPS
from bench.places import BROKERS, DATABASES, fresh_broker, fresh_database, installed, server_of, tell


def add_parser(commands: Any) -> None:
    """``python -m bench memory``."""
    parser: argparse.ArgumentParser = commands.add_parser("memory", help="a relay's resident memory on a backlog")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--broker", choices=BROKERS, default="null")
    parser.add_argument("--ownership", choices=OWNERSHIPS, default="partition")
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--payload", type=int, default=300, metavar="BYTES")
    parser.add_argument("--seconds", type=float, default=30, help="at most so long; less if all was sent before")
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Memory at the start, and its peak while the relay works."""
    with fresh_database(options.database) as url, fresh_broker(options.broker) as broker:
        installed(url)
        bulk(url, Bulk(0, options.pending, broker.destination, options.payload))
        tell(f"{options.pending:,} events of {options.payload:,} bytes are pending")
        told = {
            "side": "product",
            "ownership": options.ownership,
            "database": url,
            "broker": broker.url,
            "destination": broker.destination,
            "batch": 2000,
        }
        with started("relaying", told) as relay:
            first = relay.ask("state")
            deadline = time.monotonic() + options.seconds
            while (state := relay.ask("state"))["confirmed"] < options.pending and time.monotonic() < deadline:
                time.sleep(0.25)
            last = relay.end()
    return {
        "bench": "memory",
        "database": options.database,
        "broker": options.broker,
        "ownership": options.ownership,
        "versions": {name: server_of(name).version for name in (options.database, options.broker)},
        "pending": options.pending,
        "payload_bytes": options.payload,
        "sent": state["confirmed"],
        "rss_mib": {"at the start": first["rss_mib"], "peak": last["peak_rss_mib"]},
        "machine": machine.facts(),
    }


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    counts = f"{summary['pending']:,} pending of {summary['payload_bytes']:,} bytes, {summary['sent']:,} sent"
    return f"{summary['database']} -> {summary['broker']}, {counts}\n" + "\n".join(
        f"{name:12} {size:>7.1f} MiB" for name, size in summary["rss_mib"].items()
    )
