"""`pillarbox consume package.module:consumer`: run a consumer until told to stop."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from typing import Annotated, Final

import typer

from ..exit_codes import ExitCode
from ..options import AsJson, ConfigFile, LogJson, LogLevel

log = logging.getLogger("pillarbox.consume")

_WAIT_FOR_THREADS: Final = 5.0
"""Seconds for threads that handlers started and left, once everything is acknowledged."""


def consume(
    consumer: Annotated[
        str, typer.Argument(metavar="MODULE:CONSUMER", help="Where the Consumer is, as package.module:attribute.")
    ],
    config: ConfigFile = None,
    log_level: LogLevel = None,
    log_json: LogJson = None,
    json: AsJson = False,
) -> None:
    """Apply events once. Database, broker, sources and drain time are the Consumer's own arguments, in your code.

    SIGTERM or Ctrl-C: the handler that runs is finished, what is done is acknowledged, then it ends.
    """
    from ...consume.signals import DrainInterrupted
    from ..loading import load_consumer
    from ..output import as_json
    from ..settings import settings

    settings(config, log__level=log_level, log__json_lines=log_json)
    found = load_consumer(consumer)
    log.info("consumer %s: reading %s", found.name, ", ".join(found.sources))
    interrupted = False
    before = set(threading.enumerate())
    try:
        found.run()
    except DrainInterrupted:
        interrupted = True
        log.error("consumer %s: a handler was not done in time; it is rolled back, its event comes again", found.name)
    counts = asdict(found.stats)
    log.info(
        "consumer %s ended: %s", found.name, ", ".join(f"{k} {n}" for k, n in counts.items() if n) or "nothing came"
    )
    if json:
        as_json({"consumer": found.name, **counts})
    code = ExitCode.FAILED if interrupted else ExitCode.OK
    _leave_threads_behind(before, code)
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _leave_threads_behind(before: AbstractSet[threading.Thread], code: ExitCode) -> None:
    """End the process here when a thread of a handler would keep it alive: a stop has its time, and this is over."""
    until = time.monotonic() + _WAIT_FOR_THREADS
    ours = [thread for thread in threading.enumerate() if not thread.daemon and thread not in before]
    for thread in ours:
        thread.join(max(0.0, until - time.monotonic()))
    running = [thread.name for thread in ours if thread.is_alive()]
    if running:
        log.warning("threads that handlers started still run and are left: %s", ", ".join(running))
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
