"""One of several relay processes. Not a command for people: `pillarbox relay --processes` starts it.

A JSON line on stdin says what to do; that stdin ends is how it learns that its parent is gone. It writes JSON lines to
stdout: once a second what its relays look like, at last how it went. A pipe of its own each way, and no memory shared:
a child can be killed at any moment without harm to anybody.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from typing import Any, Final

from ...config import Config
from ...errors import PillarboxError
from .. import logs
from ..exit_codes import ExitCode
from ..failures import report
from .crew import Crew
from .here import run_here
from .plan import planned

log = logging.getLogger("pillarbox.cli")

REPORT_SECONDS: Final = 1.0


def order(config: Config, process: int, *, until_empty: bool, timeout: float | None, database_given: bool) -> str:
    """The line that a child reads first."""
    return json.dumps(
        {
            "config": config.model_dump(mode="json"),
            "process": process,
            "until_empty": until_empty,
            "timeout": timeout,
            "database_given": database_given,
        }
    )


def main() -> int:
    """Read the order, work, report."""
    given = json.loads(sys.stdin.readline())
    config = Config(**given["config"])
    logs.configure(config.log)
    try:
        return _work(given, config)
    except PillarboxError as error:
        return report(error, as_json=config.log.json_lines)


def _work(given: dict[str, Any], config: Config) -> ExitCode:
    crew = Crew(planned(config, given["process"], database_given=given["database_given"]))
    for target in (_watch_parent, lambda: _show(crew)):
        threading.Thread(target=target, daemon=True).start()
    ended = run_here(
        crew,
        until_empty=given["until_empty"],
        timeout=given["timeout"],
        stop_deadline=config.relay.stop_deadline,
    )
    _write({"snapshots": [one.as_dict() for one in crew.snapshots()], "report": ended.report})
    return ended.code


def _watch_parent() -> None:
    sys.stdin.read()
    log.warning("the parent process is gone: ending")
    os.kill(os.getpid(), signal.SIGTERM)


def _show(crew: Crew) -> None:
    pause = threading.Event()
    while not pause.wait(REPORT_SECONDS):
        _write({"snapshots": [one.as_dict() for one in crew.snapshots()]})


def _write(value: dict[str, Any]) -> None:
    try:
        os.write(sys.stdout.fileno(), (json.dumps(value, default=str) + "\n").encode())
    except OSError as error:  # nobody reads any more; _watch_parent ends this process
        log.debug("nothing to report to: %s", error)


if __name__ == "__main__":
    sys.exit(main())
