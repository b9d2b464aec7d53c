"""What a person sees: counts while it runs, two tables at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .ledger import Books
from .options import DemoOptions, Way
from .way import Glance

TITLES: Mapping[Way, str] = {
    "inside": "send inside the transaction",
    "after": "send after the commit",
    "outbox": "outbox, relay and inbox",
}


def announce(console: Console, options: DemoOptions) -> None:
    """What is about to happen: a pipe shows nothing else until the end."""
    console.print(
        f"{options.orders:,} orders each way; {options.failing:.0%} of them fail after their event was written or "
        "sent, so nobody may hear of those. Processes are killed meanwhile.",
        highlight=False,
    )


@contextmanager
def live(console: Console) -> Iterator[Callable[[Glance], None]]:
    """A line per way that grows while it runs; on a pipe, nothing but the end result."""
    rows: dict[Way, Glance] = {}
    if not console.is_terminal:
        yield lambda glance: None
        return
    with Live(_progress(rows), console=console, refresh_per_second=8, transient=True) as view:

        def show(glance: Glance) -> None:
            rows[glance.way] = glance
            view.update(_progress(rows))

        yield show


def _progress(rows: Mapping[Way, Glance]) -> Table:
    table = Table(title="Orders are placed, processes are killed …", title_justify="left")
    for column in ("way", "orders", "waiting in the outbox", "sent", "applied", "killed"):
        table.add_column(column, justify="left" if column in ("way", "killed") else "right")
    for way, glance in rows.items():
        killed = ", ".join(f"{role} {times}x" for role, times in glance.kills.items() if times)
        waiting, sent = ("-" if n is None else str(n) for n in (glance.waiting, glance.sent))
        table.add_row(TITLES[way], str(glance.orders), waiting, sent, str(glance.applied), killed)
    return table


def report(console: Console, books: Mapping[Way, Books], kills: Mapping[Way, Mapping[str, int]]) -> None:
    """The two tables: what there is, and what is wrong with it."""
    counts = Table(title="By event id", title_justify="left")
    faults = Table(title="What went wrong", title_justify="left")
    for table in (counts, faults):
        table.add_column("way")
    for column in ("orders", "events", "published", "applied", "processes killed"):
        counts.add_column(column, justify="right")
    for column in ("ghosts", "losses", "duplicates delivered", "applied twice"):
        faults.add_column(column, justify="right")
    for way, b in books.items():
        killed = str(sum(kills[way].values()))
        counts.add_row(TITLES[way], str(b.orders), str(b.events or "-"), str(b.published), str(b.applied), killed)
        bad = [_mark(n) for n in (b.ghosts, b.losses)]
        faults.add_row(TITLES[way], *bad, str(b.duplicates_delivered), _mark(b.applied_twice))
    console.print(counts)
    console.print(faults)


def _mark(number: int) -> str:
    return f"[bold red]{number}[/]" if number else "[green]0[/]"


def console(*, quiet: bool) -> Console:
    """Standard output, or standard error when the output belongs to JSON."""
    return Console(file=sys.stderr if quiet else sys.stdout, quiet=quiet)
