"""What an HTTP application feels of a relay that sends 2,000 events a second: embedded, standalone, and a control.

The control has the same load on database and broker by another client: the raw loop, in a process of its own. Each
round has an application, its clients, other writers that make most of the events, and one of the three.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import permutations
from statistics import median
from typing import Any, Literal

from sqlalchemy import create_engine

from bench import machine
from bench.child import Child, started
from bench.latency import at_share
from bench.places import DATABASES, Broker, fresh_broker, fresh_database, installed, server_of, tell
from bench.serving import make_tables

Way = Literal["control", "standalone", "embedded"]
WAYS: tuple[Way, ...] = ("control", "standalone", "embedded")
WARM_UP = 3.0


def add_parser(commands: Any) -> None:
    """``python -m bench beside``."""
    parser: argparse.ArgumentParser = commands.add_parser("beside", help="an HTTP application's p99 beside a relay")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--broker", choices=("kafka", "rabbitmq"), default="kafka")
    parser.add_argument("--events", type=int, default=2000, help="events per second that the relay sends")
    parser.add_argument("--requests", type=int, default=50, help="requests per second")
    parser.add_argument("--seconds", type=float, default=15, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds by way: medians of the rounds' p50 and p99, and their ratios to the control's."""
    rounds: dict[Way, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number, way in _turns(options.rounds):
        found = one_round(options, way)
        rounds[way].append(found)
        tell(f"round {number}, {way}: {found}")
    middle = {
        way: {name: round(median(one[name] for one in found), 2) for name in found[0]} for way, found in rounds.items()
    }
    return {
        "bench": "beside",
        "database": options.database,
        "broker": options.broker,
        "versions": {name: server_of(name).version for name in (options.database, options.broker)},
        "events_per_second": options.events,
        "requests_per_second": options.requests,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "milliseconds": middle,
        "every_round": rounds,
        "ratio": {
            way: {name: round(middle[way][name] / middle["control"][name], 3) for name in ("p50", "p95", "p99")}
            for way in WAYS[1:]
        },
        "machine": machine.facts(),
    }


def _turns(rounds: int) -> Iterator[tuple[int, Way]]:
    """Each round in another order: who comes first meets colder caches."""
    orders = list(permutations(WAYS))
    for number in range(rounds):
        for way in orders[number % len(orders)]:
            yield number + 1, way


def one_round(options: argparse.Namespace, way: Way) -> dict[str, float]:
    """On tables and a topic of its own."""
    with fresh_database(options.database) as url, fresh_broker(options.broker) as broker, ExitStack() as children:
        installed(url)
        engine = create_engine(url)
        make_tables(engine)
        engine.dispose()
        place = {"database": url, "broker": broker.url, "destination": broker.destination}
        relay = _relay(children, way, place)
        app = Child("serving", place | {"embed": way == "embedded"})
        children.callback(app.kill)
        port = app.hear(60)["port"]
        feeder = children.enter_context(started("feeding", place | {"rate": options.events - options.requests}))
        clients = {"port": port, "rate": options.requests, "seconds": options.seconds}
        feeder.ask("go")
        with started("asking", clients | {"seconds": WARM_UP}) as warm:
            warm.ask("go", 60)
        before, cpu = _arrived(broker), app.ask("cpu")["cpu"]
        with started("asking", clients) as asking:
            took = sorted(asking.ask("go", options.seconds + 60))
        sent = (_arrived(broker) - before) / options.seconds
        cpu = (app.ask("cpu")["cpu"] - cpu) / options.seconds
        feeder.end()
        app.end()
        if relay:
            relay.end()
        return _figures(took) | {"sent_per_second": round(sent), "application_cpu": round(cpu, 3)}


def _relay(children: ExitStack, way: Way, place: dict[str, Any]) -> Child | None:
    if way == "embedded":
        return None
    side = "product" if way == "standalone" else "raw"
    told = {"side": side, "ownership": "partition", "poll": 0.005, "note": False}
    return children.enter_context(started("relaying", place | told))


def _arrived(broker: Broker) -> int:
    assert broker.arrived is not None
    return broker.arrived()


def _figures(took: list[float]) -> dict[str, float]:
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: at_share(took, share) for name, share in shares.items()} | {"max": round(took[-1], 2)}


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    head = (
        f"{summary['database']} -> {summary['broker']}, {summary['requests_per_second']} requests/s beside"
        f" {summary['events_per_second']} events/s, ms"
    )
    lines = [head, f"{'':12} {'p50':>8} {'p95':>8} {'p99':>8} {'events/s':>9} {'CPU of app':>10}"]
    for way, found in summary["milliseconds"].items():
        figures = " ".join(f"{found[name]:>8.2f}" for name in ("p50", "p95", "p99"))
        lines.append(f"{way:12} {figures} {found['sent_per_second']:>9.0f} {found['application_cpu']:>10.2f}")
    ratios = (f"{way} p50 {found['p50']:.2f} p99 {found['p99']:.2f}" for way, found in summary["ratio"].items())
    return "\n".join([*lines, "ratio to control: " + ", ".join(ratios)])
