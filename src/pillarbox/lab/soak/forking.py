"""The process that all processes of a soak are forked from: ``python -m pillarbox.lab.soak.forking MODULE …``."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from ..nursery import Nursery
from .child import live


def main(modules: Sequence[str]) -> None:
    """Import ``modules`` and all that the roles need, then fork as ordered until the orders end."""
    # Reports go where standard output was; what anything prints from here on must not get among them.
    reports = os.dup(1)
    os.dup2(2, 1)
    for name in ("pillarbox.lab.soak.roles", *modules):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is shared stays shared: the collector of a child does not write into these pages
    with suppress(BrokenPipeError):  # nobody reads the reports: the lab is gone, and so are its orders
        Nursery(0, reports, live).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
