"""`pillarbox inbox prune`: remove marks and effects of events that cannot be delivered any more."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import AsJson, ConfigFile, Database, LogJson, LogLevel

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from ...ops.inbox_prune import InboxPruner, InboxStep

app = typer.Typer(help="The inbox: what each consumer has applied.", no_args_is_help=True)


@app.callback()
def inbox() -> None:
    """The inbox: what each consumer has applied."""


@app.command("prune")
def prune_marks(
    database: Database = None,
    keep: Annotated[str, typer.Option("--keep", metavar="TIME", help="How long marks stay: 30d, 12h.")] = "30d",
    horizon: Annotated[
        str,
        typer.Option(
            "--horizon", metavar="TIME", help="How long the broker may deliver an event again; --keep must be longer."
        ),
    ] = "7d",
    consumer: Annotated[
        str | None, typer.Option("--consumer", metavar="NAME", help="The marks of this consumer only.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="Marks in one transaction.", min=1)] = 500,
    rate: Annotated[
        str, typer.Option("--rate", metavar="N/s", help="At most so many marks a second; 0 for no limit.")
    ] = "0",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count, and change nothing.")] = False,
    log_level: LogLevel = None,
    log_json: LogJson = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Remove marks, and effects that are done, older than anything the broker can still deliver, in small batches."""
    from ..settings import settings

    found = settings(config, database=database, log__level=log_level, log__json_lines=log_json)
    from ...ops.inbox_prune import InboxPruner, InboxRules
    from ..inbox_database import open_inbox_engine
    from ..output import show
    from ..signals import run_until_signalled

    seconds, most = _parsers()
    rules = InboxRules(
        seconds(keep, "--keep"), seconds(horizon, "--horizon"), consumer, batch=batch, rate=most(rate, "--rate")
    )
    stopping = threading.Event()
    steps: list[InboxStep] = []
    began = time.monotonic()
    with open_inbox_engine(found, lock=1) as engine:
        pruner = InboxPruner(engine, rules, dry=dry_run)
        run_until_signalled(lambda: _steps(pruner, stopping, steps, dry=dry_run), stopping.set, 25.0)
    report = {
        "dry_run": dry_run,
        "removed": sum(pruner.removed.values()),
        "consumers": pruner.removed,
        "effects": pruner.effects_removed,
        "finished": bool(steps and steps[-1].finished),
        "seconds": round(time.monotonic() - began, 3),
    }
    show(report, json_wanted=json, people=lambda: _sentence(report))


def _steps(pruner: InboxPruner, stopping: threading.Event, last: list[InboxStep], *, dry: bool) -> None:
    while not stopping.is_set():
        last[:] = [pruner.step()]
        if last[0].finished:
            return
        if not dry:
            stopping.wait(last[0].pause)


def _sentence(report: dict[str, object]) -> str:
    what = "would be removed; nothing was changed." if report["dry_run"] else f"removed in {report['seconds']} s."
    more = "" if report["finished"] else " There may be more."
    return f"{report['removed']} marks and {report['effects']} effects {what}{more}"


def _parsers() -> tuple[_Parser, _Parser]:
    from pydantic import TypeAdapter

    from ...config import KeepTime, Rate

    return _Parser(TypeAdapter(KeepTime)), _Parser(TypeAdapter(Rate))


class _Parser:
    """An option's text, checked like the setting of that kind."""

    def __init__(self, kind: TypeAdapter[float]) -> None:
        self._kind = kind

    def __call__(self, value: str, option: str) -> float:
        from pydantic import ValidationError

        try:
            return self._kind.validate_python(value)
        except ValidationError as error:
            raise typer.BadParameter(f"{value!r}: {error.errors()[0]['msg']}", param_hint=option) from error
