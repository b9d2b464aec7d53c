"""From commit to broker and to a real consumer, at a steady rate: the product and a raw loop that polls take turns."""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

from bench import machine
from bench.child import Child, Told, started
from bench.drain import turns
from bench.job import OWNERSHIPS, SIDES, Side
from bench.places import BROKERS, DATABASES, fresh_broker, fresh_database, installed, server_of, tell

Times = list[tuple[str, int]]


def add_parser(commands: Any) -> None:
    """``python -m bench latency``."""
    parser: argparse.ArgumentParser = commands.add_parser("latency", help="commit to broker and consumer, at a rate")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--ownership", choices=OWNERSHIPS, default="partition")
    parser.add_argument("--rate", type=int, default=200, help="events per second")
    parser.add_argument("--seconds", type=float, default=15, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--poll", type=float, default=0.005, help="seconds that the raw loop waits after nothing")
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds by side and stage, the medians of the rounds, and how many times as long the product takes."""
    rounds: dict[Side, list[dict[str, dict[str, float]]]] = {side: [] for side in SIDES}
    for number, side in turns(options.rounds):
        found = one_round(options, side)
        rounds[side].append(found)
        tell(f"round {number}, {side}: {found}")
    middle = {
        side: {
            stage: {name: round(median(one[stage][name] for one in found), 2) for name in found[0][stage]}
            for stage in found[0]
        }
        for side, found in rounds.items()
    }
    stages = middle["product"]
    return {
        "bench": "latency",
        "database": options.database,
        "broker": options.broker,
        "ownership": options.ownership,
        "versions": {name: server_of(name).version for name in (options.database, options.broker)},
        "rate": options.rate,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "raw_poll_seconds": options.poll,
        "milliseconds": middle,
        "every_round": rounds,
        "ratio": {
            stage: {name: round(stages[stage][name] / middle["raw"][stage][name], 3) for name in ("p50", "p99")}
            for stage in stages
        },
        "machine": machine.facts(),
    }


def one_round(options: argparse.Namespace, side: Side) -> dict[str, dict[str, float]]:
    """Relay, consumer and writers, each a process of its own, on tables and a destination of their own."""
    with fresh_database(options.database) as url, fresh_broker(options.broker) as broker:
        installed(url)
        told = {
            "side": side,
            "ownership": options.ownership,
            "database": url,
            "broker": broker.url,
            "destination": broker.destination,
            "poll": options.poll,
            "note": True,
        }
        writer = {"database": url, "destination": broker.destination, "rate": options.rate, "seconds": options.seconds}
        with started("relaying", told) as relay:
            if broker.url.startswith("null:"):
                commits, notes, _ = follow(relay, None, writer)
                return {"broker": spread(commits, notes)}
            with started("reading", {"broker": broker.url, "destination": broker.destination}) as consumer:
                commits, notes, arrivals = follow(relay, consumer, writer)
                return {"broker": spread(commits, notes), "consumer": spread(commits, arrivals)}


def follow(relay: Child, consumer: Child | None, told: Told) -> tuple[Times, Times, Times]:
    """Write, wait until all has arrived, end both. A warm-up second comes first and is left out."""
    write(told | {"seconds": 1.0, "rate": 100})
    before = wait_for(relay, consumer, 100)
    commits = write(told)
    wait_for(relay, consumer, before + len(commits))
    arrivals = consumer.end() if consumer else []
    return commits, relay.end()["notes"], arrivals


def write(told: Told) -> Times:
    """Have an application write at its rate; when each event was committed."""
    with started("writing", told) as writer:
        commits: Times = writer.ask("go", told["seconds"] + 60)
    return commits


def wait_for(relay: Child, consumer: Child | None, expected: int, patience: float = 30.0) -> int:
    """Until so many events have been confirmed and have arrived; RuntimeError if they do not."""
    deadline = time.monotonic() + patience
    while True:
        confirmed = relay.ask("state")["confirmed"]
        arrived = confirmed if consumer is None else consumer.ask("state")
        if confirmed >= expected and arrived >= expected:
            return int(confirmed)
        if time.monotonic() > deadline:
            raise RuntimeError(f"of {expected} events {confirmed} are confirmed and {arrived} have arrived")
        time.sleep(0.2)


def spread(commits: Times, seen: Times) -> dict[str, float]:
    """Milliseconds between an event's commit and when it was first seen."""
    at: dict[str, int] = {}
    for event_id, moment in seen:
        at.setdefault(event_id, moment)
    lags = sorted((at[event_id] - moment) / 1e6 for event_id, moment in commits)
    return {"p50": at_share(lags, 0.5), "p99": at_share(lags, 0.99), "max": round(lags[-1], 2), "events": len(lags)}


def at_share(ordered: list[float], share: float) -> float:
    """The value below which this share lies."""
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2)


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    head = f"{summary['database']} -> {summary['broker']}, {summary['rate']}/s, {summary['ownership']} lease, ms"
    lines = [head, f"{'':8} {'':10} {'p50':>8} {'p99':>8}"]
    for side in SIDES:
        for stage, found in summary["milliseconds"][side].items():
            lines.append(f"{side:8} {stage:10} {found['p50']:>8.2f} {found['p99']:>8.2f}")
    ratios = (f"{stage} p50 {found['p50']:.2f} p99 {found['p99']:.2f}" for stage, found in summary["ratio"].items())
    return "\n".join([*lines, "ratio " + ", ".join(ratios)])
