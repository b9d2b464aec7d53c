"""Several relays on the same tables: together they must not be much slower than one, nor look at more rows.

The relays run, and share the partitions, before there is anything to do; then all work appears in one commit.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from statistics import median
from typing import Any

from sqlalchemy import create_engine, text

from bench import machine
from bench.bulk import Bulk, bulk, show
from bench.child import Child, started
from bench.counters import Counters, difference, own_account, per_event
from bench.job import OWNERSHIPS
from bench.places import BROKERS, DATABASES, fresh_broker, fresh_database, installed, server_of, tell, wait_for_arrival


def add_parser(commands: Any) -> None:
    """``python -m bench relays``."""
    parser: argparse.ArgumentParser = commands.add_parser("relays", help="1, 2 and 4 relays on one backlog")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--broker", choices=BROKERS, default="null")
    parser.add_argument("--ownership", choices=OWNERSHIPS, default="partition")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--relays", type=int, nargs="+", default=[1, 2, 4])
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Rates by number of relays, and each one's share of the first one's."""
    rounds: dict[int, list[dict[str, Any]]] = {count: [] for count in options.relays}
    for number in range(options.rounds):
        for count in options.relays if number % 2 == 0 else options.relays[::-1]:
            found = one_round(options, count)
            rounds[count].append(found)
            tell(
                f"round {number + 1}, {count} relays: {found['events_per_second']:,} events/s, shares {found['shares']}"
            )
    rates = {count: median(one["events_per_second"] for one in found) for count, found in rounds.items()}
    first = rates[options.relays[0]]
    return {
        "bench": "relays",
        "database": options.database,
        "broker": options.broker,
        "ownership": options.ownership,
        "versions": {name: server_of(name).version for name in (options.database, options.broker)},
        "events": options.events,
        "batch": options.batch,
        "rounds": options.rounds,
        "events_per_second": {str(count): round(rate) for count, rate in rates.items()},
        "every_round": {str(count): found for count, found in rounds.items()},
        "rows_examined_per_event": {
            str(count): max((one["database_work_per_event"].get("rows_examined", 0.0) for one in found), default=0.0)
            for count, found in rounds.items()
        },
        "ratio": {str(count): round(rate / first, 3) for count, rate in rates.items()},
        "machine": machine.facts(),
    }


def one_round(options: argparse.Namespace, count: int) -> dict[str, Any]:
    """From the commit that shows the work to the last settlement."""
    with fresh_database(options.database) as url, fresh_broker(options.broker) as broker, own_account(url) as own:
        installed(url)
        bulk(url, Bulk(0, options.events, broker.destination, shown=False))
        told = {
            "side": "product",
            "ownership": options.ownership,
            "database": own,
            "broker": broker.url,
            "destination": broker.destination,
            "batch": options.batch,
        }
        with ExitStack() as stack:
            relays = [
                stack.enter_context(started("relaying", told | {"relay_id": f"bench-{number}"}))
                for number in range(count)
            ]
            until_shared(url, count, options.ownership)
            counters = Counters(url, own)
            before = counters.settled()
            show(url)
            begin = time.monotonic()
            until_confirmed(relays, options.events)
            until_empty(url)
            seconds = time.monotonic() - begin
            work = difference(counters.settled(), before)
            counters.close()
            ends = [relay.end() for relay in relays]
        wait_for_arrival(broker, options.events)
    return {
        "events_per_second": round(options.events / seconds),
        "shares": [one["confirmed"] for one in ends],
        "duplicates": sum(one["confirmed"] for one in ends) - options.events,
        "database_work_per_event": per_event(work, options.events),
    }


def until_confirmed(relays: list[Child], events: int, patience: float = 300.0) -> None:
    """All relays together have had so many confirmations."""
    deadline = time.monotonic() + patience
    while sum(relay.ask("state")["confirmed"] for relay in relays) < events:
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all of {events} events were confirmed in {patience:g} s")
        time.sleep(0.05)


def until_empty(url: str, table: str = "outbox_ready", patience: float = 60.0) -> None:
    """Nothing is left in the table."""
    _until(url, f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT 1) AS one", lambda count: count == 0, patience)


def until_shared(url: str, relays: int, ownership: str, patience: float = 60.0) -> None:
    """Each relay has its part of the partitions."""
    if ownership == "partition":
        owners = "SELECT count(DISTINCT owner) * 100 + count(*) FROM outbox_partition WHERE owner <> ''"
        _until(url, owners, lambda found: found == relays * 100 + 16, patience)
        fair = "SELECT max(c) FROM (SELECT count(*) AS c FROM outbox_partition GROUP BY owner) AS shares"
        _until(url, fair, lambda most: most <= -(-16 // relays), patience)


def _until(url: str, sql: str, is_so: Any, patience: float) -> None:
    engine = create_engine(url)
    deadline = time.monotonic() + patience
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            while not is_so(found := connection.execute(text(sql)).scalar_one()):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{sql} still gives {found}")
                time.sleep(0.01)
    finally:
        engine.dispose()


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"{summary['database']} -> {summary['broker']}, {summary['events']:,} events, {summary['ownership']} lease"
    ]
    for count, rate in summary["events_per_second"].items():
        examined = summary["rows_examined_per_event"][count]
        lines.append(
            f"{count} relays {rate:>8,} events/s  ratio {summary['ratio'][count]:.2f}  rows examined {examined}"
        )
    return "\n".join(lines)
