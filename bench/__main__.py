"""Compare the product with hand-written code on the same servers.

python -m bench drain --database mysql --broker kafka --events 50000 --json
python -m bench add --database postgres
"""

from __future__ import annotations

import argparse
import json
import sys

from bench import add
from bench.drain import Task, compare, run_once
from bench.job import OWNERSHIPS, SIDES
from bench.places import BROKERS, DATABASES, NoServer, server_of
from bench.report import as_table, summarise


def main(arguments: list[str] | None = None) -> int:
    """0: measured. 1: a server is missing."""
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except NoServer as error:
        print(error, file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = root.add_subparsers(required=True, metavar="drain|add")
    drain = commands.add_parser("drain", help="the relay against a raw loop, on a backlog")
    drain.add_argument("--database", choices=DATABASES, default="sqlite")
    drain.add_argument("--broker", choices=BROKERS, default="null")
    drain.add_argument("--ownership", choices=OWNERSHIPS, default="partition")
    drain.add_argument("--side", choices=SIDES, help="this one alone")
    drain.add_argument("--events", type=int, default=20_000)
    drain.add_argument("--batch", type=int, default=2000, help="events per batch, on both sides")
    drain.add_argument("--rounds", type=int, default=3)
    drain.add_argument("--payload", type=int, default=300, metavar="BYTES")
    drain.add_argument("--profile", action="store_true", help="one more run of the product under cProfile")
    drain.add_argument("--json", action="store_true")
    drain.set_defaults(run=run_drain)
    adding = commands.add_parser("add", help="outbox.add against two raw inserts in the same transaction")
    adding.add_argument("--database", choices=DATABASES, default="sqlite")
    adding.add_argument("--transactions", type=int, default=2_000, help="of each kind")
    adding.add_argument("--payload", type=int, default=300, metavar="BYTES")
    adding.add_argument("--json", action="store_true")
    adding.set_defaults(run=run_add)
    return root


def run_drain(options: argparse.Namespace) -> int:
    task = Task(
        options.database,
        options.broker,
        options.events,
        options.batch,
        options.rounds,
        payload_bytes=options.payload,
        ownership=options.ownership,
        sides=(options.side,) if options.side else SIDES,
    )
    versions = {name: server_of(name).version for name in (task.database, task.broker)}
    summary = summarise(task, compare(task, tell), versions)
    if options.profile:
        summary["profile"] = run_once(task, "product", profile=True).profile
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        print(as_table(summary) + (f"\n{summary['profile']}" if options.profile else ""))
    return 0


def run_add(options: argparse.Namespace) -> int:
    summary = add.compare(add.AddTask(options.database, options.transactions, options.payload))
    print(json.dumps(summary, indent=2) if options.json else add.as_table(summary))
    return 0


def tell(line: str) -> None:
    """Progress goes to standard error: standard output is the result."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
