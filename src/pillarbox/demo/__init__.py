"""The story in one command: an order service, a stock service, and what becomes of 1,000 orders when processes die.

Three ways of telling the stock service: inside the transaction, after the commit, and through the outbox. Every process
is real and is killed with SIGKILL at named points while it works.
"""

from __future__ import annotations

import json
import sys

from .options import DemoOptions


def run(options: DemoOptions) -> int:
    """Run it, print the tables (or JSON), and return 0 when the outbox kept its promise, else 1.

    The naive ways are shown, not judged. The last line is ``ghosts 0, losses 0, applied twice 0`` of the outbox way.
    """
    from .screen import TITLES, announce, console, live, report
    from .signals import ended_by_signals
    from .way import run_way

    screen = console(quiet=options.json)
    announce(screen, options)
    books, kills = {}, {}
    with ended_by_signals(), live(screen) as show:
        for way in options.ways:
            books[way], kills[way] = run_way(way, options, show)
    report(screen, books, kills)
    if options.json:
        result = {way: {**books[way].as_dict(), "kills": kills[way]} for way in books}
        json.dump({"ways": result, "titles": dict(TITLES)}, sys.stdout, indent=2)
        print()
    if "outbox" not in books:
        return 0
    outbox = books["outbox"]
    if not options.json:
        print(f"ghosts {outbox.ghosts}, losses {outbox.losses}, applied twice {outbox.applied_twice}")
    return 0 if outbox.balanced else 1


__all__ = ["DemoOptions", "run"]
