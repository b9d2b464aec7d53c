"""`pillarbox relay`: bring committed events to the broker until told to stop."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import ExitCode
from ..options import AsJson, Broker, ConfigFile, Database, LogJson, LogLevel

if TYPE_CHECKING:
    from ...config import Config

log = logging.getLogger("pillarbox.relay")


def relay(
    database: Database = None,
    broker: Broker = None,
    config: ConfigFile = None,
    relay_id: Annotated[
        str | None, typer.Option("--relay-id", help="Name of this relay, unique (default: host-pid-random).")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Events per claim.")] = None,
    lease: Annotated[
        float | None, typer.Option("--lease", metavar="SECONDS", help="How long a dead relay's events wait at most.")
    ] = None,
    broker_deadline: Annotated[
        float | None,
        typer.Option("--broker-deadline", metavar="SECONDS", help="For an acknowledgement; below lease / 2."),
    ] = None,
    stop_deadline: Annotated[
        float | None, typer.Option("--stop-deadline", metavar="SECONDS", help="After SIGTERM or Ctrl-C, to finish.")
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when nothing is ready; exit 1 if something is left or died.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="With --until-empty: give up then, exit 4.")
    ] = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
    json: AsJson = False,
) -> None:
    """Publish committed events. SIGTERM or Ctrl-C: the batch in flight is finished or given back, then it ends.

    A broker that is away is waited for; nothing is charged to the events. Start more relays to go faster.
    """
    from ..settings import settings

    if timeout is not None and not until_empty:
        raise typer.BadParameter("only together with --until-empty", param_hint="--timeout")
    found = settings(
        config,
        database=database,
        broker=broker,
        relay__id=relay_id,
        relay__batch=batch,
        relay__lease=lease,
        relay__broker_deadline=broker_deadline,
        relay__stop_deadline=stop_deadline,
        log__level=log_level,
        log__json_lines=log_json,
    )
    code, report = _run(found, until_empty=until_empty, timeout=timeout)
    if json:
        from ..output import as_json

        as_json(report)
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _run(config: Config, *, until_empty: bool, timeout: float | None) -> tuple[ExitCode, dict[str, object]]:
    from ...masking import mask_whole_url
    from ...wiring import broker_url, build_relay, database_url, new_relay_id, open_tables
    from ..signals import run_until_signalled

    name = config.relay.id or new_relay_id()
    with build_relay(config, name) as relay:
        log.info("relay %s: %s to %s", name, mask_whole_url(database_url(config)), mask_whole_url(broker_url(config)))
        gc.freeze()  # what is loaded by now stays for good: the collector need not walk it while batches come and go
        with _timer(timeout, relay.stop) as timed_out:
            run_until_signalled(lambda: relay.run(until_empty=until_empty), relay.stop, config.relay.stop_deadline)
    stats = relay.stats.as_dict()
    log.info("relay %s ended: %s", name, ", ".join(f"{name} {n}" for name, n in stats.items() if n) or "nothing to do")
    report: dict[str, object] = {"relay": name, **stats}
    if not until_empty:
        return ExitCode.OK, report
    from ...ops.overview import overview

    with open_tables(config) as tables:
        left = tables.read(overview).waiting
    report["left"] = left
    if timed_out.is_set():
        return ExitCode.UNAVAILABLE, report
    return (ExitCode.FAILED if left or stats["dead"] else ExitCode.OK), report


@contextmanager
def _timer(seconds: float | None, stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Call ``stop`` after ``seconds``, if any; the event tells whether it came to that."""
    rang = threading.Event()
    if seconds is None:
        yield rang
        return

    def ring() -> None:
        rang.set()
        stop()

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield rang
    finally:
        timer.cancel()
