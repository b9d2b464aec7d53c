"""What an idle relay costs, and how soon it sends the first event after a rest, with nobody to nudge it."""

from __future__ import annotations

import argparse
import time
from typing import Any

from bench import machine
from bench.child import started
from bench.counters import Counters, difference, own_account
from bench.job import OWNERSHIPS
from bench.latency import spread, wait_for
from bench.places import BROKERS, DATABASES, fresh_broker, fresh_database, installed, server_of, tell
from bench.writing import Writer


def add_parser(commands: Any) -> None:
    """``python -m bench idle``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "idle", help="an idle relay's statements, and its first event"
    )
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--broker", choices=BROKERS, default="null")
    parser.add_argument("--ownership", choices=OWNERSHIPS, default="partition")
    parser.add_argument("--seconds", type=float, default=20, help="of idling while statements are counted")
    parser.add_argument("--events", type=int, default=8, help="each after a rest")
    parser.add_argument("--rest", type=float, default=3.0, help="seconds")
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Statements per second by the server's count, and milliseconds from commit to confirmation."""
    with (
        fresh_database(options.database) as url,
        fresh_broker(options.broker) as broker,
        own_account(url) as own,
    ):
        installed(url)
        told = {
            "side": "product",
            "ownership": options.ownership,
            "database": own,
            "broker": broker.url,
            "destination": broker.destination,
            "note": True,
        }
        counters = Counters(url, own)
        alone = counters.read()
        time.sleep(options.seconds)
        alone = difference(counters.read(), alone)  # the server's own: PostgreSQL counts autovacuum, and who asks
        with started("relaying", told) as relay:
            time.sleep(min(5.0, options.seconds))  # it acquires, and comes to rest
            before, cpu, begin = counters.read(), relay.ask("state")["cpu"], time.monotonic()
            time.sleep(options.seconds)
            work = difference(counters.read(), before)
            seconds, cpu = time.monotonic() - begin, relay.ask("state")["cpu"] - cpu
            counters.close()
            tell(f"counted in {seconds:.1f} s: {work}; without a relay: {alone}")
            writer = Writer(url, broker.destination, 300)
            for number in range(options.events):
                time.sleep(options.rest + 0.07 * number)  # not in step with its polling
                writer.write()
            wait_for(relay, None, options.events)
            notes = relay.end()["notes"]
    return {
        "bench": "idle",
        "database": options.database,
        "broker": options.broker,
        "ownership": options.ownership,
        "versions": {name: server_of(name).version for name in (options.database, options.broker)},
        "seconds": round(seconds, 1),
        "statements_per_second": round((work["statements"] - alone["statements"]) / seconds, 2) if work else None,
        "statements_without_a_relay": alone.get("statements"),
        "processor_share": round(cpu / seconds, 4),
        "first_event_milliseconds": spread(writer.commits, notes),
        "machine": machine.facts(),
    }


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    first = summary["first_event_milliseconds"]
    return (
        f"{summary['database']} -> {summary['broker']}: {summary['statements_per_second']} statements/s while idle, "
        f"{summary['processor_share']:.1%} of a core\n"
        f"first event after a rest: p50 {first['p50']:.0f} ms, at most {first['max']:.0f} ms"
    )
