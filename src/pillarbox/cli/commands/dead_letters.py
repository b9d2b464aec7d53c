"""`pillarbox dead-letters list|replay`: what a consumer gave up, in its dead-letter topic or queue."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..exit_codes import ExitCode
from ..options import AsJson, Broker, ConfigFile, LogJson, LogLevel

app = typer.Typer(
    help="What a consumer gave up, in its dead-letter topic or queue (what a relay gave up: `dead`).",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Option("--consumer", metavar="NAME", help="The consumer's name.")]
From = Annotated[str, typer.Option("--source", metavar="NAME", help="The topic or queue that it reads.")]
Type = Annotated[str | None, typer.Option("--type", metavar="NAME", help="Only events of this type.")]
Why = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Only those whose reason contains this text.")]


@app.command("list")
def list_letters(
    consumer: Name,
    source: From,
    broker: Broker = None,
    type_: Type = None,
    error: Why = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.", min=1, max=10_000)] = 50,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """List what the consumer gave up and nobody has replayed, the oldest first. Changes nothing."""
    from ..settings import settings

    found = settings(config, broker=broker)
    from ...consume.deadletters import Choice, chosen, open_dead_letters
    from ...wiring import broker_url
    from ..letter_views import letters_as_dict, letters_table
    from ..output import show

    choice = Choice(event_type=type_, reason=error, limit=limit)
    with open_dead_letters(broker_url(found), consumer, source) as box:
        letters = list(chosen(box, choice))
    show(letters_as_dict(letters), json_wanted=json, people=lambda: letters_table(letters))


@app.command("replay")
def replay_letters(
    consumer: Name,
    source: From,
    event_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[EVENT_ID]...", help="These events, or places for what has no id; or by the options."),
    ] = None,
    broker: Broker = None,
    type_: Type = None,
    error: Why = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of this source.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", help="At most so many, the oldest first.", min=1)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; needed where nobody can answer.")] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who, for the record (default: user@host).")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "not given",
    config: ConfigFile = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
    json: AsJson = False,
) -> None:
    """Send what a consumer gave up to it again, and to no other, under the same event id. Each is noted in the log."""
    from ..settings import settings

    if bool(event_ids) + ((type_, error) != (None, None)) + everything != 1:
        raise typer.BadParameter("name event ids, or choose by --type, --error, or take --all")
    found = settings(config, broker=broker, log__level=log_level, log__json_lines=log_json)
    from datetime import UTC, datetime

    from ...consume.deadletters import Choice, Order, open_dead_letters, replay
    from ...wiring import broker_url
    from ..dead_views import operator
    from ..letter_views import report_text
    from ..output import as_json, say

    choice = Choice(frozenset(event_ids or ()), type_, error, limit)
    order = Order(by or operator(), reason, datetime.now(UTC))
    with open_dead_letters(broker_url(found), consumer, source) as box:
        if not (dry_run or yes or event_ids):
            _ask(consumer, source, quiet=json)
        report = replay(box, choice, order, dry_run=dry_run)
    if json:
        as_json({**report._asdict(), "dry_run": dry_run})
    else:
        say(report_text(report, dry_run=dry_run))
        if report.missing:
            print(f"no dead letters: {', '.join(report.missing)}", file=sys.stderr)
    if not report.matched or report.missing:
        raise typer.Exit(ExitCode.FAILED)


def _ask(consumer: str, source: str, *, quiet: bool) -> None:
    if quiet or not sys.stdin.isatty():
        raise typer.BadParameter("pass --yes to replay them, or --dry-run to count")
    if not typer.confirm(f"Replay the dead letters of {consumer} on {source}?", err=True):
        raise typer.Exit(ExitCode.FAILED)
