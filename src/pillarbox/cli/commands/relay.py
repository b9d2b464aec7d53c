"""`pillarbox relay`: bring committed events to the broker until told to stop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import ExitCode
from ..options import AsJson, Broker, ConfigFile, Database, LogJson, LogLevel, OutboxName, TablePrefix, positive_seconds

if TYPE_CHECKING:
    from ...config import Config
    from ..relays.here import Ended


def relay(
    database: Database = None,
    broker: Broker = None,
    outbox: OutboxName = None,
    table_prefix: TablePrefix = None,
    config: ConfigFile = None,
    relay_id: Annotated[
        str | None, typer.Option("--relay-id", help="Name of this relay, unique (default: host-pid-random).")
    ] = None,
    ownership: Annotated[
        str | None,
        typer.Option("--ownership", metavar="KIND", help="partition keeps each key's order (default), row does not."),
    ] = None,
    on_failure: Annotated[
        str | None,
        typer.Option("--on-failure", metavar="WHAT", help="Later events of a key: hold (default) or skip the failed."),
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Events read at once (default 2000).")] = None,
    lease: Annotated[
        float | None,
        typer.Option("--lease", metavar="SECONDS", help="How long a dead relay's events wait (default 60)."),
    ] = None,
    broker_deadline: Annotated[
        float | None,
        typer.Option(
            "--broker-deadline", metavar="SECONDS", help="For an acknowledgement; below lease / 2 (default 20)."
        ),
    ] = None,
    stop_deadline: Annotated[
        float | None,
        typer.Option("--stop-deadline", metavar="SECONDS", help="To finish after SIGTERM or Ctrl-C (default 25)."),
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is ready; exit 1 if something is left or died.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="With --until-empty: give up then, exit 4 (default: after 60 s without the broker).",
            callback=positive_seconds,
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Answer /health, /ready and /metrics there."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", help="Processes that share the work (default 1).")
    ] = None,
    listen: Annotated[
        bool | None, typer.Option("--listen", help="PostgreSQL: be woken by Outbox(notify=True).")
    ] = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
    json: AsJson = False,
) -> None:
    """Publish committed events. SIGTERM or Ctrl-C: the batch in flight is finished or given back, then it ends.

    A broker that is away is waited for; nothing is charged to the events. Start more relays to go faster.
    """
    from ..settings import refuse_two_ways, settings

    if timeout is not None and not until_empty:
        raise typer.BadParameter("only together with --until-empty", param_hint="--timeout")
    refuse_two_ways(outbox, database, table_prefix)
    found = settings(
        config,
        database=database,
        broker=broker,
        table_prefix=table_prefix,
        relay__id=relay_id,
        relay__ownership=ownership,
        relay__on_failure=on_failure,
        relay__batch=batch,
        relay__lease=lease,
        relay__broker_deadline=broker_deadline,
        relay__stop_deadline=stop_deadline,
        relay__http=http,
        relay__processes=processes,
        relay__listen=listen,
        log__level=log_level,
        log__json_lines=log_json,
    )
    if outbox is not None:
        from ...config import alone

        found = alone(found, outbox)
    code, report = _run(found, until_empty=until_empty, timeout=timeout, database_given=database is not None)
    if json:
        from ..output import as_json

        as_json(report)
    elif until_empty and code is not ExitCode.OK:
        from ..relays.remains import why

        print(why(report), file=sys.stderr)
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _run(config: Config, *, until_empty: bool, timeout: float | None, database_given: bool) -> Ended:
    from ...observe.server import Address

    http = Address.parse(config.relay.http) if config.relay.http else None
    if config.relay.processes > 1:
        from ..relays.parent import run_processes

        return run_processes(config, until_empty=until_empty, timeout=timeout, http=http, database_given=database_given)
    from ..relays.crew import Crew
    from ..relays.here import run_here
    from ..relays.plan import planned

    return run_here(
        Crew(planned(config, database_given=database_given)),
        until_empty=until_empty,
        timeout=timeout,
        stop_deadline=config.relay.stop_deadline,
        http=http,
    )
