"""`pillarbox lab kafka`: what Kafka's idempotence and acknowledgements promise, shown on real brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..exit_codes import ExitCode
from ..options import AsJson


def kafka(
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="URL", help="kafka://host:port,…: the cluster for retries and sessions."),
    ] = None,
    kafka_via: Annotated[
        str | None,
        typer.Option(
            "--kafka-via", metavar="A=R,…", help="What each broker advertises for the proxies, and where it really is."
        ),
    ] = None,
    kafka_home: Annotated[
        Path | None,
        typer.Option("--kafka-home", metavar="DIR", help="A Kafka distribution, to start brokers that may be killed."),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Events of each experiment.", min=1, max=1_000)] = 20,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Keep kafka.json there.")] = None,
    json: AsJson = False,
) -> None:
    """Count what Kafka doubles and loses: retries, sessions, and acks when the leader dies.

    What cannot be run here is shown as expected, not run. Exit 1 when something came out otherwise than expected.
    """
    from ...lab.kafka.running import run_trials
    from ...lab.kafka.showing import as_json, save_trials, table
    from ...lab.kafka.trial import Trial
    from ...lab.results import make
    from ..output import show

    def tell(trial: Trial) -> None:
        if trial.ran and not json:
            typer.echo(f"{trial.id} {trial.title}: {trial.sentence}", err=True)

    if out is not None:
        make(out)
    trials = run_trials(broker, via=kafka_via, home=kafka_home, events=rounds, show=tell)
    if out is not None:
        save_trials(out, trials)
    show({"experiments": [as_json(one) for one in trials]}, json_wanted=json, people=lambda: table(trials))
    if any(one.as_expected is False for one in trials):
        raise typer.Exit(ExitCode.FAILED)
