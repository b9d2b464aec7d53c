"""Run any Python program, and strike it at a named point; the program itself is not changed::

    python -m pillarbox.lab.struck --kill-at relay.after-confirm -m pillarbox relay --database … --broker …
    python -m pillarbox.lab.struck --stop-at outbox.after-commit:3 shop.py

``--kill-at`` sends SIGKILL to itself, ``--stop-at`` SIGSTOP (whoever started it sends SIGCONT). ``:3`` means the third
passage. Pillarbox's points are in :data:`pillarbox.faultpoints.POINTS`; the program may have its own.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from typing import Final

from .. import faultpoints
from .strikes import Strike

_SIGNALS: Final = {"--kill-at": signal.SIGKILL, "--stop-at": signal.SIGSTOP}
_USAGE: Final = (
    "usage: python -m pillarbox.lab.struck (--kill-at|--stop-at) POINT[:TIMES] (-m MODULE | FILE) [ARGUMENT …]"
)


def main(arguments: list[str]) -> None:
    """Attach the strike and become the program."""
    if len(arguments) < 3 + (arguments[2:3] == ["-m"]) or arguments[0] not in _SIGNALS:
        sys.exit(_USAGE)
    number, (point, _, times) = _SIGNALS[arguments[0]], arguments[1].partition(":")
    _refuse_misspelt(point)
    strike = Strike(point, int(times or 1))

    def hook(name: str) -> None:
        if strike.hits(name):
            os.kill(os.getpid(), number)

    faultpoints.attach(hook)
    if arguments[2] == "-m":
        sys.argv = arguments[3:]
        runpy.run_module(arguments[3], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments[2:]
        runpy.run_path(arguments[2], run_name="__main__")


def _refuse_misspelt(point: str) -> None:
    # Other programs may have points of any name; those of Pillarbox's own parts are all known, and one that is never
    # reached would let a relay or a consumer run for ever.
    parts = {one.partition(".")[0] for one in faultpoints.POINTS}
    if point.partition(".")[0] in parts and point not in faultpoints.POINTS:
        sys.exit(f"There is no point {point!r}; Pillarbox has {', '.join(faultpoints.POINTS)}.")


if __name__ == "__main__":
    main(sys.argv[1:])
