"""A broker that goes away with events waiting: nothing dies, nothing is charged, and the full rate is back soon.

RabbitMQ behind a proxy that refuses connections for a while. Full rate is the rate of the same backlog without outage,
in the same run; it is back in the first second in which 80 % of it were confirmed.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from sqlalchemy import create_engine, make_url, text

from bench import machine
from bench.bulk import Bulk, bulk, show
from bench.child import Child, started
from bench.places import DATABASES, Broker, fresh_broker, fresh_database, installed, server_of, tell
from bench.relays import until_confirmed, until_empty, until_shared
from pillarbox.lab.proxy import FaultProxy, fault_proxy

FULL = 0.8


def add_parser(commands: Any) -> None:
    """``python -m bench outage``."""
    parser: argparse.ArgumentParser = commands.add_parser("outage", help="the broker goes away with events waiting")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20, help="of the outage")
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds from the broker's return to the first confirmation and to the full rate."""
    normal = one_run(options, 0)
    found = one_run(options, options.seconds)
    full = FULL * normal["events_per_second"]
    return {
        "bench": "outage",
        "database": options.database,
        "broker": "rabbitmq",
        "versions": {name: server_of(name).version for name in (options.database, "rabbitmq")},
        "events": options.events,
        "outage_seconds": options.seconds,
        "events_per_second_without_outage": normal["events_per_second"],
        "first_confirmation_after_seconds": _when(found["progress"], lambda _before, now: now[1] > 0),
        "full_rate_after_seconds": _when(
            found["progress"], lambda before, now: (now[1] - before[1]) / max(0.001, now[0] - before[0]) >= full
        ),
        "dead": found["dead"],
        "charged": found["charged"],
        "duplicates": found["duplicates"],
        "stats": found["stats"],
        "machine": machine.facts(),
    }


def one_run(options: argparse.Namespace, outage: float) -> dict[str, Any]:
    """The events appear while the broker is away; then it comes back."""
    with fresh_database(options.database) as url, fresh_broker("rabbitmq") as broker:
        installed(url)
        bulk(url, Bulk(0, options.events, broker.destination, shown=False))
        place = make_url(broker.url)
        with fault_proxy(place.host or "", place.port or 5672) as proxy:
            own = place.set(port=proxy.port).render_as_string(hide_password=False)
            return _run(url, Broker(own, broker.destination, broker.arrived), proxy, options.events, outage)


def _run(url: str, broker: Broker, proxy: FaultProxy, events: int, outage: float) -> dict[str, Any]:
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
        if outage:
            proxy.refuse()
        show(url)
        time.sleep(outage)
        proxy.heal()
        begin = time.monotonic()
        progress = _follow(relay, begin, events)
        until_confirmed([relay], events)
        until_empty(url)
        seconds = time.monotonic() - begin
        dead, charged = _casualties(url)
        last = relay.end()
    tell(f"{events:,} events in {seconds:.1f} s after {outage:g} s without broker")
    return {
        "events_per_second": round(events / seconds),
        "progress": progress,
        "dead": dead,
        "charged": charged,
        "duplicates": last["confirmed"] - events,
        "stats": last["stats"],
    }


def _follow(relay: Child, begin: float, events: int) -> list[tuple[float, int]]:
    """(seconds since the return, events confirmed), about five times a second."""
    progress: list[tuple[float, int]] = [(0.0, 0)]
    while progress[-1][1] < events:
        time.sleep(0.2)
        progress.append((time.monotonic() - begin, relay.ask("state")["confirmed"]))
        if progress[-1][0] > 300:
            raise RuntimeError(f"only {progress[-1][1]} of {events} events were confirmed in 300 s")
    return progress


def _when(progress: list[tuple[float, int]], is_so: Any) -> float | None:
    """The first moment that fulfils it, compared with the one about a second before."""
    for place, now in enumerate(progress):
        before = progress[max(0, place - 5)]
        if place and is_so(before, now):
            return round(now[0], 1)
    return None


def _casualties(url: str) -> tuple[int, int]:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            dead = connection.execute(text("SELECT count(*) FROM outbox_parked WHERE state = 'DEAD'")).scalar_one()
            charged = connection.execute(text("SELECT count(*) FROM outbox_parked WHERE attempts > 0")).scalar_one()
    finally:
        engine.dispose()
    return int(dead), int(charged)


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    counts = f"{summary['events']:,} events, {summary['outage_seconds']:g} s without broker"
    return (
        f"{summary['database']} -> rabbitmq, {counts}\n"
        f"first confirmation {summary['first_confirmation_after_seconds']} s after its return, full rate"
        f" {summary['full_rate_after_seconds']} s; {summary['dead']} dead, {summary['charged']} charged,"
        f" {summary['duplicates']} twice"
    )
