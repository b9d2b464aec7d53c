"""`pillarbox held list|release|skip`: keys and destinations whose events wait, and letting them go."""

from __future__ import annotations

from typing import Annotated

import typer

from ..exit_codes import ExitCode
from ..options import AsJson, ConfigFile, Database, OutboxName, TablePrefix

app = typer.Typer(help="Held keys: events that wait behind another one, with the reason.", no_args_is_help=True)

To = Annotated[str | None, typer.Option("--destination", metavar="NAME", help="Only for this topic or exchange.")]


@app.command("list")
def list_held(
    database: Database = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    destination: To = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.", min=1, max=10_000)] = 50,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """List what is held, the oldest first: behind which event, why, and how many wait."""
    from ..settings import settings_of_one

    found = settings_of_one(config, outbox, database, table_prefix)
    from ...ops.held import page
    from ...wiring import open_tables
    from ..held_views import held_as_dict, held_table
    from ..output import show

    with open_tables(found) as tables:
        held = tables.read(lambda c: page(c, destination=destination, limit=limit))
    show(held_as_dict(held), json_wanted=json, people=lambda: held_table(held))


@app.command("release")
def release_held(
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="This key; for an event without a key, its event id.")
    ] = None,
    database: Database = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    destination: To = None,
    all_of: Annotated[
        str | None, typer.Option("--all-of", metavar="DESTINATION", help="Every key of this topic or exchange.")
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Let go what waits, now; an event that is dead stays dead, and the others of its key overtake it."""
    from ..settings import settings_of_one

    if (key is None) == (all_of is None) or (all_of is not None and destination is not None):
        raise typer.BadParameter("name a key, perhaps with --destination, or take --all-of DESTINATION")
    found = settings_of_one(config, outbox, database, table_prefix)
    from ...ops.held import release_destination, release_key
    from ...wiring import open_tables

    with open_tables(found) as tables:
        if all_of is not None:
            released = release_destination(tables, all_of)
        else:
            released = release_key(tables, key or "", destination)
    _tell(released, "released", json)


@app.command("skip")
def skip_held(
    key: Annotated[str, typer.Argument(metavar="KEY", help="This key; for an event without a key, its event id.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")],
    database: Database = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    destination: To = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who, for the record (default: user@host).")
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Bury the event that holds up a key, on the record, and let go what waits behind it."""
    from ..settings import settings_of_one

    found = settings_of_one(config, outbox, database, table_prefix)
    from ...ops.held import skip
    from ...wiring import open_tables
    from ..dead_views import operator

    with open_tables(found) as tables:
        skipped = skip(tables, key, destination, by=by or operator(), reason=reason)
    _tell(skipped, "skipped", json)


def _tell(count: int, what: str, json: bool) -> None:
    from ..output import as_json, counted, say

    if json:
        as_json({what: count})
    else:
        say(f"{counted(count, 'held key was', 'held keys were')} {what}." if count else "Nothing is held there.")
    if not count:
        raise typer.Exit(ExitCode.FAILED)


@app.callback()
def group() -> None:
    """Held keys: events that wait behind another one, with the reason."""
