"""``python -m bench drain``: how fast a backlog goes, against a raw loop, and what it costs the database."""

from __future__ import annotations

import argparse
from typing import Any

from bench.drain import Task, compare, run_once
from bench.fill import AGGREGATES
from bench.job import OWNERSHIPS, SIDES
from bench.places import BROKERS, DATABASES, server_of, tell
from bench.report import as_table, summarise


def add_parser(commands: Any) -> None:
    """Also ``hotkey``, which is a drain of one key."""
    parser: argparse.ArgumentParser = commands.add_parser("drain", help="the relay against a raw loop, on a backlog")
    _add_options(parser)
    parser.add_argument("--keys", type=int, default=AGGREGATES, help="ordering keys that take turns")
    parser.add_argument("--one-at-a-time", action="store_true", help="the raw loop awaits each message by itself")
    hot = commands.add_parser("hotkey", help="a backlog of one single key; on RabbitMQ against one message in flight")
    _add_options(hot)
    hot.set_defaults(keys=1, one_at_a_time=None)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--broker", choices=BROKERS, default="null")
    parser.add_argument("--ownership", choices=OWNERSHIPS, default="partition")
    parser.add_argument("--side", choices=SIDES, help="this one alone")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=2000, help="events per batch, on both sides")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--payload", type=int, default=300, metavar="BYTES")
    parser.add_argument("--profile", action="store_true", help="one more run of the product under cProfile")
    parser.set_defaults(run=run, table=table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Both sides in turns; the summary of :mod:`bench.report`."""
    alone = options.broker == "rabbitmq" if options.one_at_a_time is None else options.one_at_a_time
    task = Task(
        options.database,
        options.broker,
        options.events,
        options.batch,
        options.rounds,
        payload_bytes=options.payload,
        ownership=options.ownership,
        sides=(options.side,) if options.side else SIDES,
        keys=options.keys,
        one_at_a_time=alone,
    )
    versions = {name: server_of(name).version for name in (task.database, task.broker)}
    summary = summarise(task, compare(task, tell), versions)
    if options.profile:
        summary["profile"] = run_once(task, "product", profile=True).profile
    return summary


def table(summary: dict[str, Any]) -> str:
    """For people."""
    return as_table(summary) + (f"\n{summary['profile']}" if "profile" in summary else "")
