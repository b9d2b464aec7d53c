"""python -m services: see `--help`."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType

from services import apt, control, faults
from services.control import Outcome
from services.place import Place
from services.process import ServiceError

MIB = 1 << 20
# Told apart by the Makefile: something went wrong / root has to install packages first.
FAILED, PACKAGES_MISSING = 1, 3


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m services", description=control.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in [
        ("up", "fetch and start servers, all if none is named"),
        ("down", "stop them; the data stays"),
    ]:
        commands.add_parser(name, help=text).add_argument("names", nargs="*", metavar="SERVER")
    commands.add_parser("status", help="what runs, and how much memory it takes")
    commands.add_parser("env", help="NAME=URL of each server that can be used")
    commands.add_parser("wipe", help="stop all and delete their data; downloads stay")
    for name, text in [
        ("kill", "SIGKILL"),
        ("start", "start it again and wait until it answers"),
        ("stop", "SIGSTOP"),
        ("cont", "SIGCONT"),
    ]:
        commands.add_parser(name, help=f"one process, such as kafka2: {text}").add_argument("part")
    commands.add_parser("running", help="the servers of which anything runs, one a line")
    runner = commands.add_parser("run", help="up, then a command, then stop what was started for it")
    runner.add_argument("argv", nargs=argparse.REMAINDER, metavar="[NAME ...] -- COMMAND")
    chosen = parser.parse_args(arguments)
    try:
        return _carry_out(chosen)
    except ServiceError as error:
        print(error, file=sys.stderr)
        return FAILED


def _carry_out(chosen: argparse.Namespace) -> int:
    match chosen.command:
        case "up":
            return _up(chosen.names)
        case "down":
            print("stopped:", " ".join(control.down(chosen.names)) or "nothing ran")
        case "status":
            _print_status()
        case "env":
            print("".join(f"{name}={url}\n" for name, url in control.urls().items()), end="")
        case "running":
            print("".join(f"{name}\n" for name in control.partly_running()), end="")
        case "wipe":
            _wipe()
        case "run":
            return _run(chosen.argv)
        case breaking:
            getattr(faults, breaking)(chosen.part)
    return 0


def _up(names: list[str]) -> int:
    begin = time.monotonic()
    outcomes = control.up(names, tell=_tell)
    memory = sum(control.memory().values()) / MIB
    print(f"{time.monotonic() - begin:.1f} s in all, {memory:.0f} MiB in memory; URLs in .services/env")
    if hint := _what_root_can_do(outcomes):
        print(hint)
    return _status_of(outcomes)


def _tell(one: Outcome) -> None:
    times = f"fetched {one.fetched_s:5.1f} s, ready {one.ready_s:5.1f} s" if not one.problem else one.problem
    print(f"{one.name:<11} {one.state:<8} {times}\n", end="", flush=True)  # one write: threads call this


def _status_of(outcomes: list[Outcome]) -> int:
    states = {outcome.state for outcome in outcomes}
    return FAILED if "failed" in states else PACKAGES_MISSING if "missing" in states else 0


def _run(argv: list[str]) -> int:
    """Runs a command with these servers up, or all. What was up before stays up; what was started for it is stopped.

    The last line says which servers were not there, and what root has to say to get them.
    """
    signal.signal(signal.SIGTERM, _interrupted)
    split = argv.index("--") if "--" in argv else 0
    names, command = argv[:split], argv[split + ("--" in argv) :]
    before = set(control.partly_running())
    outcomes: list[Outcome] = []
    try:
        if not control.running():
            print("starting the servers; the first time they are downloaded, about half a gigabyte", flush=True)
        outcomes = control.up(names, tell=_tell)
        absent = [one for one in outcomes if one.problem]
        if absent and os.environ.get("PILLARBOX_REQUIRE_SERVICES") == "1":
            return _status_of(outcomes)
        return _call(command)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        if started := [name for name in control.partly_running() if name not in before]:
            control.down(started)
        print(_what_was_skipped(outcomes))


def _call(argv: list[str]) -> int:
    """Runs a command and waits for its own clean end also when we are told to stop."""
    child = subprocess.Popen(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells the child as well
    signal.signal(signal.SIGTERM, lambda _signal, _frame: child.send_signal(signal.SIGINT))
    status = child.wait()
    return status if status >= 0 else 128 - status


def _what_was_skipped(outcomes: list[Outcome]) -> str:
    absent = [one for one in outcomes if one.problem]
    if not absent:
        return "skipped for lack of a server: nothing" if outcomes else "no server was started"
    names = ", ".join(one.name for one in absent)
    hint = _what_root_can_do(outcomes)
    return f"skipped for lack of a server: all that needs {names}{hint and f'; {hint}'}"


def _what_root_can_do(outcomes: list[Outcome]) -> str:
    packages = sorted({package for one in outcomes for package in one.missing})
    return f"as root: {apt.install_line(packages)}" if packages else ""


def _print_status() -> None:
    place, sizes = Place.of_checkout(), control.memory()
    print(f"data and logs in {place.folder}, downloads in {place.cache}, ports from {place.first_port}")
    for name, size in sizes.items():
        print(f"{name:<17} {size / MIB:6.0f} MiB")
    print(f"{'in all':<17} {sum(sizes.values()) / MIB:6.0f} MiB")


def _wipe() -> None:
    control.down()
    place = Place.of_checkout()
    shutil.rmtree(place.folder, ignore_errors=True)
    shutil.rmtree(place.env_file.parent, ignore_errors=True)


def _interrupted(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
