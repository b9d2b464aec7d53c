"""``python -m bench record``: runs what the documentation shows, and keeps each answer in a file of its own."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import machine
from bench.child import CHECKOUT
from bench.places import tell
from bench.runs import RUNS, Run, Summary

FIGURES = CHECKOUT / "docs" / "figures"


def add_parser(commands: Any) -> None:
    """``python -m bench record NAME…``."""
    parser: argparse.ArgumentParser = commands.add_parser("record", help="run by name, and keep the answer in a file")
    parser.add_argument("names", nargs="*", help="of runs, or the beginnings of names; none: list them")
    parser.add_argument("--long", action="store_true", help="also those that take minutes")
    parser.add_argument(
        "--below", type=float, metavar="SHARE", help="wait before each run until so small a share of the cores is used"
    )
    parser.set_defaults(run=run, table=as_table)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Each run in a process of its own; one that fails does not stop the others."""
    chosen = [one for one in RUNS if any(one.name.startswith(name) for name in options.names)]
    failed = []
    for one in chosen:
        if one.long and not options.long and one.name not in options.names:
            continue
        if options.below is not None:
            wait_for_rest(options.below)
        if not keep(one):
            failed.append(one.name)
    listed = [] if options.names else [[one.name, one.arguments, one.long] for one in RUNS]
    return {"bench": "record", "failed": failed, "runs": listed}


def wait_for_rest(share: float, patience: float = 900.0) -> None:
    """Until less than this share of the cores is used; after ``patience`` seconds it is said, and goes on."""
    deadline = time.monotonic() + patience
    while (now := machine.busy(3.0)) >= share:
        if time.monotonic() > deadline:
            tell(f"{now:.0%} of the cores are still used: what follows was measured on a busy machine")
            return


def keep(one: Run) -> bool:
    """Run it and write its answer to ``docs/figures``; False when it failed."""
    tell(f"== {one.name}: {one.arguments}")
    command = [sys.executable, "-m", "bench", *shlex.split(one.arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=CHECKOUT)
    if done.returncode:
        return False
    summary = json.loads(done.stdout)
    FIGURES.mkdir(exist_ok=True)
    (FIGURES / f"{one.name}.json").write_text(json.dumps(summary, indent=1) + "\n")
    for bar in one.bars:
        met = "met" if bar.holds(summary) else "MISSED"
        tell(f"   {bar.what}: {bar.measured(summary):g} ({'>=' if bar.at_least else '<='} {bar.limit:g}) {met}")
    return True


def kept(folder: Path = FIGURES) -> dict[str, Summary]:
    """The answers by name of run, in the order of the runs."""
    paths = ((one.name, folder / f"{one.name}.json") for one in RUNS)
    return {name: json.loads(path.read_text()) for name, path in paths if path.exists()}


def as_table(summary: dict[str, Any]) -> str:
    """The list of runs, and which failed."""
    lines = [f"{name:26} {'long ' if long else '     '} {arguments}" for name, arguments, long in summary["runs"]]
    return "\n".join([*lines, *(f"failed: {name}" for name in summary["failed"])])
