"""Successors of a dead event: how fast they are set aside, and how fast they go once it was replayed.

Against the normal rate of the same relay on the same number of events of one key, in the same run.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

from bench import machine
from bench.bulk import Bulk, bulk, hold, show
from bench.child import started
from bench.places import BROKERS, DATABASES, fresh_broker, fresh_database, installed, server_of, tell
from bench.relays import until_confirmed, until_empty, until_shared
from pillarbox.ops import replay
from pillarbox.store.dead import DeadFilter
from pillarbox.store.engines import relay_engine
from pillarbox.store.transactions import Transactions


def add_parser(commands: Any) -> None:
    """``python -m bench parked``."""
    parser: argparse.ArgumentParser = commands.add_parser("parked", help="events behind a dead one of their key")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--broker", choices=BROKERS, default="null")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Events per second: normal, parking, draining."""
    rounds = []
    for number in range(options.rounds):
        rounds.append(one_round(options))
        tell(f"round {number + 1}: {rounds[-1]}")
    rates = {name: round(median(one[name] for one in rounds)) for name in ("normal", "park", "drain")}
    return {
        "bench": "parked",
        "database": options.database,
        "broker": options.broker,
        "versions": {name: server_of(name).version for name in (options.database, options.broker)},
        "events": options.events,
        "rounds": options.rounds,
        "events_per_second": rates,
        "peak_rss_mib": max(one["peak_rss_mib"] for one in rounds),
        "every_round": rounds,
        "ratio": {name: round(rates[name] / rates["normal"], 3) for name in ("park", "drain")},
        "machine": machine.facts(),
    }


def one_round(options: argparse.Namespace) -> dict[str, float]:
    """Two databases: one without the dead head, and one with it."""
    normal, _ = _timed(options, held=False)
    times, peak = _timed(options, held=True)
    rates = {"normal": normal[0], "park": times[0], "drain": times[1]}
    return {name: round(options.events / seconds) for name, seconds in rates.items()} | {"peak_rss_mib": peak}


def _timed(options: argparse.Namespace, *, held: bool) -> tuple[list[float], float]:
    """Seconds until all has left the queue, and, when it was parked, from the replay until all was sent."""
    with fresh_database(options.database) as url, fresh_broker(options.broker) as broker:
        installed(url)
        bulk(url, Bulk(1, options.events, broker.destination, keys=1, shown=False))
        if held:
            hold(url, broker.destination)
        told = {
            "side": "product",
            "ownership": "partition",
            "database": url,
            "broker": broker.url,
            "destination": broker.destination,
            "batch": 2000,
        }
        with started("relaying", told) as relay:
            until_shared(url, 1, "partition")
            show(url)
            begin = time.monotonic()
            if not held:
                until_confirmed([relay], options.events)
            until_empty(url, patience=300)
            times = [time.monotonic() - begin]
            if held:
                begin = time.monotonic()
                _replay(url)
                until_confirmed([relay], options.events + 1)
                until_empty(url, "outbox_parked")
                times.append(time.monotonic() - begin)
            return times, relay.end()["peak_rss_mib"]


def _replay(url: str) -> None:
    """What ``pillarbox dead replay`` does."""
    engine = relay_engine(url)
    try:
        order = replay.Order(DeadFilter(), by="bench", reason="measuring")
        if sum(replay.replay(Transactions(engine), order)) != 1:
            raise RuntimeError("there was not one dead letter")
    finally:
        engine.dispose()


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    head = f"{summary['database']} -> {summary['broker']}, {summary['events']:,} events behind a dead one"
    lines = [f"{name:8} {rate:>9,} events/s" for name, rate in summary["events_per_second"].items()]
    return "\n".join([head, *lines, "ratio " + ", ".join(f"{k} {v:.2f}" for k, v in summary["ratio"].items())])
