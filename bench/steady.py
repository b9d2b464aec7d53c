"""Minutes at a steady rate: does anything grow worse, as dead rows that are not vacuumed would show?"""

from __future__ import annotations

import argparse
import threading
import time
from statistics import median
from typing import Any

from sqlalchemy import create_engine, text

from bench import machine
from bench.child import Child, started
from bench.job import OWNERSHIPS
from bench.latency import Times, at_share, wait_for, write
from bench.places import BROKERS, DATABASES, fresh_broker, fresh_database, installed, server_of, tell

DEAD_ROWS = text("SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_live_tup + n_dead_tup > 0")


def add_parser(commands: Any) -> None:
    """``python -m bench steady``."""
    parser: argparse.ArgumentParser = commands.add_parser("steady", help="minutes at a steady rate, without decay")
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--ownership", choices=OWNERSHIPS, default="partition")
    parser.add_argument("--rate", type=int, default=500, help="events per second")
    parser.add_argument("--minutes", type=float, default=10)
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Commit to confirmation by window, and the last third's p50 over the first third's."""
    with fresh_database(options.database) as url, fresh_broker(options.broker) as broker:
        installed(url)
        told = {
            "side": "product",
            "ownership": options.ownership,
            "database": url,
            "broker": broker.url,
            "destination": broker.destination,
            "note": True,
        }
        seconds = options.minutes * 60
        with started("relaying", told) as relay, Sampling(url, relay, seconds / 12) as samples:
            writer = {"database": url, "destination": broker.destination, "rate": options.rate, "seconds": seconds}
            commits = write(writer)
            wait_for(relay, None, len(commits))
            notes = relay.end(180)["notes"]
    windows = by_window(commits, notes, 12)
    third = len(windows) // 3 or 1
    first, last = (median(one["p50"] for one in part) for part in (windows[:third], windows[-third:]))
    return {
        "bench": "steady",
        "database": options.database,
        "broker": options.broker,
        "ownership": options.ownership,
        "versions": {name: server_of(name).version for name in (options.database, options.broker)},
        "rate": options.rate,
        "minutes": options.minutes,
        "events": len(commits),
        "milliseconds": windows,
        "samples": samples.found,
        "ratio": round(last / first, 3),
        "machine": machine.facts(),
    }


class Sampling:
    """While the block runs: dead rows, the relay's memory and its processor time, now and then."""

    def __init__(self, url: str, relay: Child, interval: float) -> None:
        self.found: list[dict[str, Any]] = []
        self._engine = create_engine(url)
        self._relay = relay
        self._interval = interval
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)
        self._engine.dispose()

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._end.wait(self._interval):
            one: dict[str, Any] = {"at": round(time.monotonic() - begin), "rss_mib": machine.rss_mib(self._relay.pid)}
            if self._engine.dialect.name == "postgresql":
                with self._engine.connect() as connection:
                    one["dead_rows"] = {row[0]: row[1] for row in connection.execute(DEAD_ROWS)}
            self.found.append(one | {"load": machine.load()[0]})
            tell(str(self.found[-1]))


def by_window(commits: Times, notes: Times, count: int) -> list[dict[str, float]]:
    """The run in so many parts of the same length, by the moment of the commit."""
    at = dict(reversed(notes))
    first, last = min(when for _, when in commits), max(when for _, when in commits) + 1
    windows: list[list[float]] = [[] for _ in range(count)]
    for event_id, when in commits:
        windows[(when - first) * count // (last - first)].append((at[event_id] - when) / 1e6)
    return [
        {"p50": at_share(sorted(lags), 0.5), "p99": at_share(sorted(lags), 0.99), "events": len(lags)}
        for lags in windows
        if lags
    ]


def as_table(summary: dict[str, Any]) -> str:
    """For people."""
    head = f"{summary['database']} -> {summary['broker']}, {summary['rate']}/s for {summary['minutes']:g} minutes"
    lines = [f"p50 {one['p50']:>7.2f} ms  p99 {one['p99']:>8.2f} ms" for one in summary["milliseconds"]]
    return "\n".join([head, *lines, f"last third over first third: {summary['ratio']:.2f}"])
