"""`pillarbox lab soak`: load, a storm of kills and cuts for minutes, and the account of every event afterwards."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ...masking import mask_url, mask_whole_url
from ..exit_codes import ExitCode
from ..options import AsJson

if TYPE_CHECKING:
    from rich.console import Console

    from ...lab.soak.running import Progress


class Ownership(StrEnum):
    """What relays own."""

    PARTITION = "partition"
    ROW = "row"


def soak(
    minutes: Annotated[float, typer.Option("--minutes", help="How long the storm lasts.", min=0.02, max=1440)] = 10.0,
    kill_every: Annotated[
        str,
        typer.Option("--kill-every", metavar="TIME", help="Mean time between two kills, over all roles: 2s, 500ms."),
    ] = "2s",
    database: Annotated[
        str | None, typer.Option("--database", metavar="URL", help="A server to make pillarbox_lab_ databases on.")
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="URL", help="kafka:// or amqp://, for pillarbox_lab_ destinations."),
    ] = None,
    kafka_via: Annotated[
        str | None,
        typer.Option("--kafka-via", metavar="LIST", help="ADVERTISED=REAL of each broker: break Kafka's links, too."),
    ] = None,
    ownership: Annotated[
        Ownership,
        typer.Option("--ownership", help="What the relays own: partition keeps the order of keys, row does not."),
    ] = Ownership.PARTITION,
    relays: Annotated[int, typer.Option("--relays", help="How many relay processes.", min=1, max=32)] = 3,
    consumers: Annotated[int, typer.Option("--consumers", help="How many consumer processes.", min=1, max=32)] = 2,
    writers: Annotated[int, typer.Option("--writers", help="How many processes write.", min=1, max=32)] = 2,
    rate: Annotated[float, typer.Option("--rate", help="Events per second that are written.", min=1)] = 200.0,
    keys: Annotated[int, typer.Option("--keys", help="How many keys the events have.", min=1, max=10_000)] = 40,
    seed: Annotated[int, typer.Option("--seed", help="Decides what is struck, and when.")] = 7,
    disturb: Annotated[
        list[str] | None,
        typer.Option(
            "--disturb", metavar="COMMAND", help="Run this at random moments, e.g. a restart. May be repeated."
        ),
    ] = None,
    disturb_times: Annotated[
        int | None,
        typer.Option("--disturb-times", help="How often in all; by default once a minute.", min=0, max=10_000),
    ] = None,
    disturb_deadline: Annotated[
        float, typer.Option("--disturb-deadline", help="Seconds after which such a command is ended.", min=1)
    ] = 120.0,
    drain: Annotated[
        float,
        typer.Option("--drain", help="Seconds after the last fault in which all has to be sent and applied.", min=1),
    ] = 180.0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep soak.json, soak.md and the processes' logs there.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Kill writers, relays and consumers and break their connections for minutes, then account for every event.

    Exit 0 when nothing was lost, invented, applied twice or out of order; 1 otherwise. Needs no server. Neither file
    nor environment is read. Ctrl-C ends the storm early and goes on to the accounting, a second one leaves.
    """
    import json as text

    from ...lab.results import make
    from ...lab.soak import SoakOptions, run_soak
    from ...lab.soak.disturbing import split
    from ...lab.soak.report import as_json, terminal, write

    options = SoakOptions(
        seconds=minutes * 60,
        kill_every=_seconds(kill_every),
        database=database,
        broker=broker,
        ownership=ownership.value,
        relays=relays,
        consumers=consumers,
        writers=writers,
        rate=rate,
        keys=keys,
        seed=seed,
        disturb=tuple(disturb or ()),
        disturb_deadline=disturb_deadline,
        disturb_times=disturb_times,
        drain=drain,
        kafka_via=kafka_via,
        out=out,
    )
    for command in options.disturb:
        split(command)
    screen = _screen(quiet=json)
    # A URL is masked before it is quoted: its password may have a space.
    words = [mask_whole_url(one) if re.match(r"[a-z0-9+]+://", one) else mask_url(one) for one in sys.argv[1:]]
    command = shlex.join(["pillarbox", *words])
    if out is not None:
        make(out)
    with _unwinding(), _live(screen) as show:
        result = run_soak(options, show, command=command)
    if out is not None:
        write(out, result)
    if json:
        print(text.dumps(as_json(result), indent=2))
    else:
        screen.print(terminal(result))
    if not result.passed:
        raise typer.Exit(ExitCode.FAILED)


def _seconds(text: str) -> float:
    """``2s``, ``500ms``, ``1m`` or a number of seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|)\s*", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time such as 2s or 500ms", param_hint="--kill-every")
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}[found[2]]


def _screen(*, quiet: bool) -> Console:
    from rich.console import Console

    return Console(file=sys.stderr if quiet else sys.stdout)


@contextmanager
def _live(screen: Console) -> Iterator[Callable[[Progress], None]]:
    """One line that changes; on a pipe, nothing but the end result."""
    if not screen.is_terminal:
        yield lambda progress: None
        return
    with screen.status("The servers are made ready …") as status:
        yield lambda progress: status.update(_line(progress))


def _line(now: Progress) -> str:
    if now.stage == "accounting":
        return "Every event is accounted for …"
    return (
        f"{now.stage} {now.seconds:.0f} of {now.of:.0f} s: {now.kills:,} kills, {now.written:,} written,"
        f" {now.waiting:,} waiting, {now.applied:,} applied"
    )


@contextmanager
def _unwinding() -> Iterator[None]:
    """SIGTERM and a closed terminal unwind the stack too, so that what was made on the servers is removed."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
