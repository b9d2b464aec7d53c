"""What is seen while the lab works: a bar and a line per cell on a terminal, lines alone elsewhere. All on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..lab.model import CellResult, Planned
from ..lab.report.texts import texts
from ..lab.report.words import counted, state_of
from ..lab.running import Progress as Moved

Keep = Callable[[CellResult], None]


class Show(Protocol):
    """Told of each finished cell, which it hands to ``keep`` first, and of progress."""

    def __call__(self, one: CellResult | Moved, *, keep: Keep) -> None: ...


@contextmanager
def progress(cells: int) -> Iterator[Show]:
    """Show a run of ``cells`` cells."""
    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=cells)

        def show(one: CellResult | Moved, *, keep: Keep) -> None:
            if isinstance(one, CellResult):
                keep(one)
                if isinstance(one.plan, Planned):
                    console.print(line(one))
                return
            working = ", ".join(str(key) for key in one.working)
            bar.update(task, completed=one.done, total=one.total, description=working or "reading what is left")

        yield show


def line(cell: CellResult) -> str:
    """``W1-S1: 20 ghosts (4.2 s)``."""
    words = texts("en")
    if cell.trouble is not None:
        return f"{cell.key}: {words.trouble}: {' '.join(cell.trouble.split())[:200]}"
    mark = f"{words.unexpected}: " if state_of(cell) == "surprise" else ""
    return f"{cell.key}: {mark}{counted(words, cell)} ({words.seconds(cell.seconds)})"
