"""`pillarbox dead list|show|replay|bury`: the events that were given up, and what becomes of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import ExitCode
from ..options import AsJson, ConfigFile, Database, OutboxName, TablePrefix

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...ops.replay import Order
    from ...store.transactions import Transactions

app = typer.Typer(help="Dead letters: events that were given up, with their reason.", no_args_is_help=True)

Type = Annotated[str | None, typer.Option("--type", metavar="NAME", help="Only events of this type.")]
To = Annotated[str | None, typer.Option("--destination", metavar="NAME", help="Only for this topic or exchange.")]
Error = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only those whose error contains this text.")
]


@app.command("list")
def list_letters(
    database: Database = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    type_: Type = None,
    destination: To = None,
    error: Error = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.", min=1, max=10_000)] = 50,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Go on behind this event: `next` of the page before.")
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """List the events that were given up, the first ones first."""
    from ..settings import settings_of_one

    found = settings_of_one(config, outbox, database, table_prefix)
    from ...ops.dead_letters import DeadFilter, page
    from ...wiring import open_tables
    from ..dead_views import letters_table, page_as_dict
    from ..output import show

    which = DeadFilter(type_, destination, error)
    with open_tables(found) as tables:
        letters = tables.read(lambda c: page(c, which, limit=limit, after=after))
    show(page_as_dict(letters), json_wanted=json, people=lambda: letters_table(letters))


@app.command("show")
def show_letter(
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event's id, as `dead list` shows it.")],
    database: Database = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Show one dead or buried letter: why it died, what it holds, and what was done about it before."""
    from ..settings import settings_of_one

    found = settings_of_one(config, outbox, database, table_prefix)
    from ...ops.dead_letters import details
    from ...wiring import open_tables
    from ..dead_views import details_as_dict, details_view
    from ..output import show

    with open_tables(found) as tables:
        letter = tables.read(lambda c: details(c, event_id))
    show(details_as_dict(letter), json_wanted=json, people=lambda: details_view(letter))


@app.command("replay")
def replay_letters(
    event_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[EVENT_ID]...", help="These events; or choose by the options.")
    ] = None,
    database: Database = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    type_: Type = None,
    destination: To = None,
    error: Error = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; needed where nobody can answer.")] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who, for the record (default: user@host).")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "not given",
    rate: Annotated[float, typer.Option("--rate", help="Events per second; 0 for no limit.", min=0)] = 500.0,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Send dead letters again under the same event id, and record who wanted it and why."""
    from ..settings import settings_of_one

    chosen_by_option = (type_, destination, error) != (None, None, None)
    if bool(event_ids) + chosen_by_option + everything != 1:
        raise typer.BadParameter("name event ids, or choose by --type, --destination, --error, or take --all")
    found = settings_of_one(config, outbox, database, table_prefix)
    from ...ops.dead_letters import DeadFilter
    from ...ops.replay import Order
    from ...wiring import open_tables
    from ..dead_views import operator

    which = list(dict.fromkeys(event_ids)) if event_ids else DeadFilter(type_, destination, error)
    order = Order(which, by or operator(), reason, rate)
    with open_tables(found) as tables:
        report = _replay(tables, order, dry_run=dry_run, confirmed=yes or isinstance(which, list), quiet=json)
    _tell(report, json)


def _replay(tables: Transactions, order: Order, *, dry_run: bool, confirmed: bool, quiet: bool) -> dict[str, object]:
    from ...ops.dead_letters import DeadFilter
    from ...ops.replay import matching, not_dead, replay

    ids = [] if isinstance(order.which, DeadFilter) else order.which
    missing = tables.read(lambda c: not_dead(c, ids)) if ids else []
    matched = tables.read(lambda c: matching(c, order.which))
    replayed = 0
    if matched and not dry_run:
        if not confirmed:
            _ask(matched, quiet)
        with _progress(matched) as advance:
            for moved in replay(tables, order):
                replayed += moved
                advance(moved)
    return {"matched": matched, "replayed": replayed, "dry_run": dry_run, "not_dead": missing}


def _ask(matched: int, quiet: bool) -> None:
    from ..output import counted

    if quiet or not sys.stdin.isatty():
        found = counted(matched, "dead letter matches", "dead letters match")
        raise typer.BadParameter(f"{found}; pass --yes to replay, or --dry-run to count")
    if not typer.confirm(f"Replay {counted(matched, 'dead letter')}?", err=True):
        raise typer.Exit(ExitCode.FAILED)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("replaying", total=total)
        yield lambda moved: progress.advance(task, moved)


def _tell(report: dict[str, object], json: bool) -> None:
    from ..output import as_json, counted, say

    matched, replayed, missing = int(str(report["matched"])), report["replayed"], report["not_dead"]
    if json:
        as_json(report)
    elif report["dry_run"]:
        say(f"{counted(matched, 'dead letter matches', 'dead letters match')}; nothing was changed.")
    else:
        all_of_them = counted(matched, "dead letter")
        say(f"{replayed} of {all_of_them} will be sent again." if matched else "No dead letter matches.")
    if missing and not json:
        print(f"not dead: {', '.join(map(str, missing))}", file=sys.stderr)  # type: ignore[call-overload]
    if not matched or missing:
        raise typer.Exit(ExitCode.FAILED)


@app.command("bury")
def bury_letters(
    event_ids: Annotated[list[str], typer.Argument(metavar="EVENT_ID...", help="These dead letters.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")],
    database: Database = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who, for the record (default: user@host).")
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Give dead letters up for good: kept for the record, never replayed; what waited behind them goes on."""
    from ..settings import settings_of_one

    found = settings_of_one(config, outbox, database, table_prefix)
    from ...ops.replay import bury, not_dead
    from ...wiring import open_tables
    from ..dead_views import operator
    from ..output import as_json, counted, say

    ids = list(dict.fromkeys(event_ids))
    with open_tables(found) as tables:
        missing = tables.read(lambda c: not_dead(c, ids))
        buried = bury(tables, ids, by=by or operator(), reason=reason)
    if json:
        as_json({"buried": buried, "not_dead": missing})
    else:
        how_many = counted(buried, "dead letter is", "dead letters are")
        say(f"{how_many} buried." if buried else "No dead letter matches.")
        if missing:
            print(f"not dead: {', '.join(missing)}", file=sys.stderr)
    if not buried or missing:
        raise typer.Exit(ExitCode.FAILED)


@app.callback()
def group() -> None:
    """Dead letters: events that were given up, with their reason."""
