"""`pillarbox prune`: remove or archive what was sent long enough ago, gently."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import AsJson, ConfigFile, Database, LogJson, LogLevel, OutboxName, TablePrefix

if TYPE_CHECKING:
    from rich.console import Group

    from ...config import Config
    from ...ops.prune import Pruner, Rules, Step
    from ...ops.prune_preview import Preview

log = logging.getLogger("pillarbox.prune")


def prune(
    database: Database = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="TIME", help="How long sent events stay: 7d, 12h, 90m (default 7d).")
    ] = None,
    keep_dead: Annotated[
        str | None,
        typer.Option("--keep-dead", metavar="TIME", help="Remove dead and buried events, too, after this time."),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="N/s", help="At most so many events a second (default: no limit).")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", metavar="N", help="Events in one transaction.")] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            "--archive", metavar="table|MODULE:FUNCTION", help="Copy events to tables, or hand them to a function."
        ),
    ] = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Drop whole partitions (RANGE (id)) instead of deleting rows.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once/--until-done", help="One batch only; or all that is old enough (default).")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count, and change nothing.")] = False,
    log_level: LogLevel = None,
    log_json: LogJson = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Remove events that were sent long enough ago, in small batches; nothing that is unsent is ever touched.

    Only one pruner works on a database at a time: another one ends with exit code 4.
    """
    from ..settings import settings_of_one

    found = settings_of_one(
        config,
        outbox,
        database,
        table_prefix,
        retention__keep=keep,
        retention__keep_dead=keep_dead,
        retention__rate=rate,
        retention__batch=batch,
        retention__archive=archive,
        log__level=log_level,
        log__json_lines=log_json,
    )
    if partitions and (found.retention.archive or found.retention.keep_dead is not None or once):
        raise typer.BadParameter(
            "drops partitions of sent events only; archive or move them yourself before", param_hint="--partitions"
        )
    if partitions:
        _drop_partitions(found, dry_run=dry_run, json=json)
    elif dry_run:
        _preview(found, json=json)
    else:
        _prune(found, once=once, json=json)


def _prune(config: Config, *, once: bool, json: bool) -> None:
    from ...ops.prune import Pruner
    from ...wiring import open_pruning_engine, prune_rules
    from ..loading import load_function
    from ..output import show
    from ..signals import run_until_signalled

    target = config.retention.archive
    rules: Rules = prune_rules(config, load_function(target) if target and ":" in target else None)
    stopping = threading.Event()
    steps: list[Step | None] = [None]
    began = time.monotonic()
    with open_pruning_engine(config) as engine:
        pruner = Pruner(engine, rules)
        try:
            run_until_signalled(lambda: _steps(pruner, stopping, steps, once=once), stopping.set, 25.0)
        finally:
            pruner.close()
    report = _report(pruner, steps[0], time.monotonic() - began)
    show(report, json_wanted=json, people=lambda: _sentence(report))


def _steps(pruner: Pruner, stopping: threading.Event, last: list[Step | None], *, once: bool) -> None:
    from ...errors import PrunerElsewhere

    told = time.monotonic()
    while not stopping.is_set():
        step = last[0] = pruner.step()
        if step.elsewhere:
            raise PrunerElsewhere("Another pruner is at work on this database.")
        if once or step.finished:
            return
        if time.monotonic() - told > 10:
            told = time.monotonic()
            log.info("%d events removed so far", pruner.removed)
        stopping.wait(step.pause)


def _report(pruner: Pruner, last: Step | None, seconds: float) -> dict[str, object]:
    return {"removed": pruner.removed, "finished": bool(last and last.finished), "seconds": round(seconds, 3)}


def _sentence(report: dict[str, object]) -> str:
    from ..output import counted

    more = "" if report["finished"] else " There may be more."
    return f"{counted(int(str(report['removed'])), 'event')} removed in {report['seconds']} s.{more}"


def _preview(config: Config, *, json: bool) -> None:
    from ...ops.prune_preview import preview
    from ...store.transactions import Transactions
    from ...wiring import open_pruning_engine, prune_rules
    from ..output import show

    rules = prune_rules(config, None)
    with open_pruning_engine(config) as engine:
        found = preview(Transactions(engine), rules.keep, batch=rules.batch)
    plain = {
        "dry_run": True,
        "states": {state: one._asdict() for state, one in found.states.items()},
        "events": found.events,
        "batches": found.batches,
    }
    show(plain, json_wanted=json, people=lambda: _table(found))


def _table(found: Preview) -> Group:
    from rich.console import Group
    from rich.table import Table

    from ..output import age, counted

    table = Table("state", box=None)
    for name in ("deliveries", "oldest", "events that would go"):
        table.add_column(name, justify="right")
    for state, one in found.states.items():
        table.add_row(state, f"{one.deliveries:,}", age(one.oldest_age), f"{one.would_go:,}")
    events, batches = counted(found.events, "event"), counted(found.batches, "batch", "batches")
    return Group(table, f" {events} would go, in {batches}; nothing was changed.")


def _drop_partitions(config: Config, *, dry_run: bool, json: bool) -> None:
    from ...ops.prune_partitions import drop_partitions
    from ...wiring import open_pruning_engine, prune_rules
    from ..output import as_json, say

    with open_pruning_engine(config) as engine:
        names = [
            f"{one.table}: {one.name}" for one in drop_partitions(engine, prune_rules(config).keep, dry_run=dry_run)
        ]
    if json:
        as_json({"dry_run": dry_run, "partitions": names})
        return
    for name in names:
        say(f"{'would drop' if dry_run else 'dropped'} {name}")
    if not names:
        say("No partition is old enough and all sent.")
