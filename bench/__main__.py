"""Compare the product with hand-written code on the same servers.

python -m bench drain --database mysql --broker kafka --events 100000 --json
python -m bench latency --database postgres --broker rabbitmq --rate 200
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from bench import machine
from bench.commands import COMMANDS
from bench.places import NoServer


def main(arguments: list[str] | None = None) -> int:
    """0: measured. 1: a server is missing."""
    options = parser().parse_args(arguments)
    before = {"load_average_before": machine.load(), "busy_before": machine.busy() if options.json else None}
    try:
        summary: dict[str, Any] = options.run(options)
    except NoServer as error:
        print(error, file=sys.stderr)
        return 1
    if "machine" in summary:
        summary["machine"] = {**before, **summary["machine"]}  # what a command measured later counts
    print(json.dumps(summary, indent=2) if options.json else options.table(summary))
    return 0


def parser() -> argparse.ArgumentParser:
    """Every command has ``--json``."""
    root = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    for one in commands.choices.values():
        one.add_argument("--json", action="store_true", help="everything that was measured, and the machine")
    return root


if __name__ == "__main__":
    sys.exit(main())
