"""The process that all processes of the lab's cells are forked from: ``python -m pillarbox.lab.forking``.

It has everything imported that a role may need, and nothing open. See :mod:`.nursery` for what it understands.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from .child import live
from .nursery import Nursery


def main(modules: Sequence[str]) -> None:
    """Import ``modules``, then fork as ordered until the orders end."""
    reports = os.dup(1)
    os.dup2(2, 1)  # what anything prints must not get among the reports
    # The lab ends it by closing its input; a Ctrl-C goes to the whole group, and must not end it before its time.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # shared pages stay shared
    with suppress(BrokenPipeError):  # nobody reads the reports: the lab is gone
        Nursery(0, reports, live).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
