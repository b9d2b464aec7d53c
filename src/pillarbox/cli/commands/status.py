"""`pillarbox status`: how many events are where, and how old the oldest waiting one is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ..options import AsJson, ConfigFile, Database, OutboxName, TablePrefix

if TYPE_CHECKING:
    from rich.console import Group

    from ...ops.overview import Status

    Look = Callable[[], Status]


def status(
    database: Database = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    watch: Annotated[
        float | None,
        typer.Option("--watch", metavar="SECONDS", help="Show it again and again, until Ctrl-C.", min=0.1, max=3600),
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Count the events by state; show the age of the oldest one that is not confirmed."""
    from ..settings import settings_of_one

    found = settings_of_one(config, outbox, database, table_prefix)
    from ...ops.overview import overview
    from ...wiring import open_tables
    from ..output import show

    with open_tables(found) as tables:
        if watch is None:
            now = tables.read(overview)
            show(_plain(now), json_wanted=json, people=lambda: _table(now))
        elif json:
            _stream(lambda: tables.read(overview), watch)
        else:
            _live(lambda: tables.read(overview), watch)


def _stream(look: Look, pause: float) -> None:
    from ..output import as_json

    while True:
        as_json(_plain(look()), flush=True)
        time.sleep(pause)


def _live(look: Look, pause: float) -> None:
    from rich.live import Live

    if not sys.stdout.isatty():  # a file or a pipe: Rich would show nothing but the last one
        _print_each(look, pause)
    with Live(_table(look()), auto_refresh=False) as live:
        while True:
            time.sleep(pause)
            live.update(_table(look()), refresh=True)


def _print_each(look: Look, pause: float) -> NoReturn:
    from ..output import show

    while True:
        show(None, json_wanted=False, people=lambda: _table(look()))
        sys.stdout.write("\n")
        sys.stdout.flush()
        time.sleep(pause)


def _plain(now: Status) -> dict[str, object]:
    return {"counts": now.counts, "waiting": now.waiting, "oldest_age_seconds": now.oldest_age}


def _table(now: Status) -> Group:
    from rich.console import Group
    from rich.table import Table

    from ...ops.overview import WHY
    from ..output import age

    table = Table("state", box=None)
    table.add_column("events", justify="right")
    table.add_column("")
    for state, count in now.counts.items():
        table.add_row(state, f"{count:,}", WHY.get(state, "") if count else "")
    return Group(table, f" oldest unconfirmed: {age(now.oldest_age)}")
