"""`pillarbox effects list|show|resolve`: calls outside whose outcome is not known, and a person's word on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..options import AsJson, ConfigFile, Database

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...ops.effects import Effect, EffectDetails

app = typer.Typer(help="Effects outside the database that are in doubt.", no_args_is_help=True)

EffectId = Annotated[str, typer.Argument(metavar="EFFECT_ID", help="Its id: the idempotency key that was sent.")]


@app.command("list")
def list_effects(
    database: Database = None,
    consumer: Annotated[str | None, typer.Option("--consumer", metavar="NAME", help="Of this consumer only.")] = None,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="SECONDS", help="Begun at least so long ago.", min=0)
    ] = 0.0,
    limit: Annotated[int, typer.Option("--limit", help="At most so many.", min=1, max=10_000)] = 50,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """List calls whose outcome is not known, the oldest first, without answers and error texts."""
    from ..settings import settings

    found = settings(config, database=database)
    from ...ops.effects import in_doubt
    from ...store.transactions import Transactions
    from ..inbox_database import open_inbox_engine
    from ..output import show

    with open_inbox_engine(found) as engine:
        effects = Transactions(engine).read(
            lambda c: in_doubt(c, consumer=consumer, older_than=older_than, limit=limit)
        )
    show({"effects": [one._asdict() for one in effects]}, json_wanted=json, people=lambda: _table(effects))


@app.command("show")
def show_effect(
    effect_id: EffectId, database: Database = None, config: ConfigFile = None, json: AsJson = False
) -> None:
    """Show one call outside: its last error, its answer, and what people decided about it."""
    from ..settings import settings

    found = settings(config, database=database)
    from ...ops.effects import details
    from ...store.transactions import Transactions
    from ..inbox_database import open_inbox_engine
    from ..output import show

    with open_inbox_engine(found) as engine:
        effect = Transactions(engine).read(lambda c: details(c, effect_id))
    show(_plain(effect), json_wanted=json, people=lambda: _facts(effect))


@app.command("resolve")
def resolve_effect(
    effect_id: EffectId,
    database: Database = None,
    done: Annotated[
        str | None, typer.Option("--done", metavar="JSON", help="It was done, and this is the answer (null for none).")
    ] = None,
    not_done: Annotated[
        bool, typer.Option("--not-done", help="It was not done; the next delivery of the event calls again.")
    ] = False,
    refused: Annotated[
        bool, typer.Option("--refused", help="It was not done and must not be; what came before it is undone.")
    ] = False,
    started: Annotated[
        bool, typer.Option("--started", help="Also if it is `started`: its process is known to be gone.")
    ] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who, for the record (default: user@host).")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "not given",
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Say what became of a call in doubt, for the record; then let its event come again."""
    from ..settings import settings

    if (done is not None) + not_done + refused != 1:
        raise typer.BadParameter("say one of --done JSON, --not-done, --refused")
    found = settings(config, database=database)
    from ...ops.effects import Verdict, resolve
    from ...store.transactions import Transactions
    from ..dead_views import operator
    from ..inbox_database import open_inbox_engine
    from ..output import show

    verdict = Verdict(
        "done" if done is not None else "refused" if refused else "not_done", by or operator(), reason, answer=done
    )
    with open_inbox_engine(found) as engine:
        was = Transactions(engine).write(lambda c: resolve(c, effect_id, verdict, started=started))
    report = {"resolved": effect_id, "was": was.state, "verdict": verdict.kind, "event_id": was.event_id}
    show(
        report,
        json_wanted=json,
        people=lambda: f"{effect_id}: {verdict.kind}. Now let event {was.event_id} come again.",
    )


def _table(effects: list[Effect]) -> RenderableType:
    from rich.table import Table

    from ..output import moment

    if not effects:
        return "No effect is in doubt."
    table = Table("effect", "consumer", "event", "step", "state", "attempts", "begun", "error", box=None)
    for one in effects:
        row = (one.id, one.consumer, one.event_id, one.step, one.state, str(one.attempts))
        table.add_row(*row, moment(one.started_at), one.error_type)
    return table


def _facts(found: EffectDetails) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    from ..output import moment

    facts = Table(show_header=False, box=None)
    for name, value in [*found.effect._asdict().items(), *found._asdict().items()]:
        if name not in ("effect", "resolutions", "error_type") and value is not None:
            facts.add_row(name, str(value))
    decisions = Table("decided at", "by", "reason", "was", "verdict", box=None)
    for one in found.resolutions:
        decisions.add_row(moment(one.resolved_at), one.resolved_by, one.reason, one.was, one.verdict)
    return Group(facts, "", decisions) if found.resolutions else facts


def _plain(found: EffectDetails) -> dict[str, object]:
    whole = found._asdict()
    whole["effect"] = found.effect._asdict()
    whole["resolutions"] = [one._asdict() for one in found.resolutions]
    return whole
