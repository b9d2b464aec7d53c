"""`pillarbox demo`: orders and stock, with processes killed on the way, and the count of what went wrong."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ..exit_codes import ExitCode
from ..options import AsJson
from ..reaching import reach_broker, reached_database


class Only(StrEnum):
    """Which ways of sending are run."""

    ALL = "all"
    OUTBOX = "outbox"
    NAIVE = "naive"


def demo(
    only: Annotated[Only, typer.Option("--only", help="outbox, or the naive ways it is compared with.")] = Only.ALL,
    database: Annotated[
        str | None, typer.Option("--database", metavar="URL", help="A server to make pillarbox_demo_ databases on.")
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="URL", help="kafka:// or amqp://, for pillarbox_demo_ destinations."),
    ] = None,
    orders: Annotated[int, typer.Option("--orders", help="How many orders are placed.", min=1, max=100_000)] = 1000,
    kills: Annotated[int, typer.Option("--kills", help="How often each process is killed.", min=0, max=20)] = 3,
    seed: Annotated[int, typer.Option("--seed", help="Decides which orders fail and where the kills strike.")] = 7,
    json: AsJson = False,
) -> None:
    """Run an order and a stock service while their processes are killed; count ghosts, losses and duplicates.

    Needs no server. Neither file nor environment is read, so that no real database is ever met by accident.
    """
    from ...demo import run
    from ...demo.options import DemoOptions

    server = reached_database(database) if database else None
    if broker and not broker.startswith("embedded:"):
        reach_broker(broker)
    options = DemoOptions(
        only=only.value, database=server, broker=broker, orders=orders, kills=kills, seed=seed, json=json
    )
    code = run(options)
    if code != ExitCode.OK:
        raise typer.Exit(code)
