"""`pillarbox lab run|list|report`: where a database and a broker disagree, shown on the reader's servers or on none."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import ExitCode
from ..options import AsJson
from . import lab_kafka, lab_soak

if TYPE_CHECKING:
    from ...lab.model import Run
    from ...lab.options import LabOptions

app = typer.Typer(
    help="The fault lab: strike between database and broker, count what is left behind, write a report.",
    no_args_is_help=True,
)

Windows = Annotated[
    list[str] | None, typer.Option("--window", metavar="ID", help="Only this window (W1, B2, …); may be given again.")
]
Strategies = Annotated[
    list[str] | None,
    typer.Option(
        "--strategy", metavar="ID", help="Only this way of sending (S1 …) or consuming (C0 …); may be given again."
    ),
]
LabDatabase = Annotated[
    str | None, typer.Option("--database", metavar="URL", help="A server to make pillarbox_lab_ databases on.")
]
LabBroker = Annotated[
    str | None,
    typer.Option("--broker", metavar="URL", help="kafka:// or amqp://, for pillarbox_lab_ topics and queues."),
]
KafkaVia = Annotated[
    str | None,
    typer.Option("--kafka-via", metavar="LIST", help="ADVERTISED=REAL of each broker: lose Kafka's answers, too."),
]


@app.command("run")
def run(
    window: Windows = None,
    strategy: Strategies = None,
    database: LabDatabase = None,
    broker: LabBroker = None,
    kafka_via: KafkaVia = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Events of each cell.", min=1, max=1_000)] = 20,
    seed: Annotated[int, typer.Option("--seed", help="The same seed strikes in the same order.")] = 7,
    parallel: Annotated[int, typer.Option("--parallel", help="Cells that run at a time.", min=1, max=8)] = 2,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where the report goes (default: a new pillarbox-lab-DATE here)."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Run the matrix of windows and strategies with real faults; write the report.

    Exit 0 when reality matched what is expected, 1 when something surprised or could not be finished. Needs no server.
    Neither pillarbox.toml nor the environment is read. Ctrl-C keeps what was done.
    """
    from ...lab.grounds import refuse_foreign, remove_leftovers
    from ...lab.options import LabOptions
    from ...lab.report import write
    from ...lab.results import check, prepare, save_cell, save_run
    from ...lab.running import run_lab
    from ..lab_progress import progress
    from ..lab_views import overview

    folder = out or Path(time.strftime("pillarbox-lab-%Y%m%d-%H%M%S"))
    options = LabOptions(
        _url(database), _broker_url(broker), _each(window), _each(strategy), rounds, seed, folder, kafka_via, parallel
    )
    cells = _cells(options)
    check(folder)
    _reach(options)
    refuse_foreign(options.database, options.broker)
    # All that may be wrong has been looked at: from here on things are made.
    remove_leftovers(options.database, options.broker)
    prepare(folder)
    save_run(folder, _begun(options))
    with progress(cells) as show:
        done = run_lab(options, lambda one: show(one, keep=lambda cell: save_cell(folder, cell)))
    save_run(folder, done)
    overview(folder, done, write(folder), json_wanted=json)
    code = _exit_code(done)
    if code != ExitCode.OK:
        raise typer.Exit(code)


@app.command("list")
def list_cells(
    database: LabDatabase = None,
    broker: LabBroker = None,
    window: Windows = None,
    strategy: Strategies = None,
    json: AsJson = False,
) -> None:
    """List windows and strategies: what would run, what is expected of it, what is impossible or not run, and why.

    The URLs only tell the kind of servers; nothing is connected to.
    """
    from ...lab.options import LabOptions
    from ...lab.running import matrix
    from ..lab_views import plans_as_dict, plans_view
    from ..output import show

    options = LabOptions(_url(database), _broker_url(broker), _each(window), _each(strategy))
    _cells(options)
    plans = matrix(options)
    show(plans_as_dict(plans), json_wanted=json, people=lambda: plans_view(plans))


@app.command("report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run, finished or not.")],
    json: AsJson = False,
) -> None:
    """Write the reports of a run again from what it kept, and print its table."""
    from ...lab.report import write
    from ...lab.results import load_run
    from ..lab_views import overview

    found = load_run(folder)
    overview(folder, found, write(folder), json_wanted=json)


def _reach(options: LabOptions) -> None:
    """One attempt each. The lab itself has patience with a server that comes back; a mistyped port deserves none."""
    from ..reaching import reach_broker, reached_database

    if options.database is not None:
        reached_database(options.database)
    if options.broker is not None:
        reach_broker(options.broker)


def _each(ids: list[str] | None) -> tuple[str, ...]:
    """Given ids, each once, spelled as the lab spells them whatever their case."""
    from ...lab.consumers import WAYS
    from ...lab.strategies import STRATEGIES
    from ...lab.windows import WINDOWS

    spelled = [*(one.id for one in WINDOWS), *(one.id for one in STRATEGIES), *(one.id for one in WAYS)]
    known = {one.lower(): one for one in spelled}
    return tuple(dict.fromkeys(known.get(one.lower(), one) for one in ids or ()))


def _url(database: str | None) -> str | None:
    """Refuse what cannot be a database of the lab's before anything is connected to."""
    from ...errors import BadUrl
    from ...wiring import dialect_name

    if database is not None and dialect_name(database) == "sqlite":
        raise BadUrl("The lab makes its own SQLite files.", fix="Leave --database out, or name a server.")
    return database


def _broker_url(broker: str | None) -> str | None:
    from ...errors import BadUrl
    from ...lab.grounds import BROKERS
    from ...masking import mask_whole_url

    scheme = "" if broker is None else broker.partition(":")[0].lower()
    if scheme == "embedded":
        raise BadUrl("The lab makes its own embedded log.", fix="Leave --broker out, or name a server.")
    if broker is not None and scheme not in BROKERS:
        raise BadUrl(
            f"The lab has no broker for {mask_whole_url(broker)}.",
            fix="Give kafka://host:9092 or amqp://host, or none.",
        )
    return broker


def _cells(options: LabOptions) -> int:
    """How many cells will run; ConfigError where nothing at all is asked for."""
    from ...errors import ConfigError
    from ...lab.model import Planned
    from ...lab.running import matrix

    plans = matrix(options)
    if not plans:
        raise ConfigError(
            "There is no such cell: W4 and W4r go with ways of consuming (C0 …), the others with those of sending.",
            fix="`pillarbox lab list` shows every cell.",
        )
    return sum(isinstance(plan, Planned) for plan in plans.values())


def _begun(options: LabOptions) -> Run:
    """What is known before the first cell: with it, a run that is killed can be read all the same."""
    from ...lab.model import Run, RunFacts
    from ...lab.running import command_of
    from ...lab.versions import versions

    facts = RunFacts(time.time(), options.seed, options.rounds, versions(), {}, command=command_of(options))
    return Run(facts, (), complete=False)


def _exit_code(done: Run) -> ExitCode:
    from ...lab.report.reading import as_expected

    if not done.complete:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if as_expected(done) else ExitCode.FAILED


app.command("kafka")(lab_kafka.kafka)
app.command("soak")(lab_soak.soak)
