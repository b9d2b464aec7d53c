"""How the lab's plans and results look on a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..lab.consumers import WAYS
from ..lab.model import CellKey, CellResult, Impossible, NotRun, Plan, Run
from ..lab.report import terminal
from ..lab.report.reading import by_severity, counts, in_reading_order
from ..lab.report.texts import texts
from ..lab.report.words import expected_of, state_of, surprise_lines
from ..lab.strategies import STRATEGIES
from ..lab.windows import WINDOWS
from .output import show

# Plans ------------------------------------------------------------------------------------------------------------


def plans_as_dict(plans: Mapping[CellKey, Plan]) -> dict[str, Any]:
    """Windows, ways and cells."""
    return {
        "windows": [{"id": one.id, "name": one.name, "boundary": one.boundary, "side": one.side} for one in WINDOWS],
        "strategies": [{"id": one.id, "name": one.name, "summary": one.summary} for one in (*STRATEGIES, *WAYS)],
        "cells": [
            {"window": key.window, "strategy": key.strategy, "state": _state(plan), "why": plan.why}
            | ({} if isinstance(plan, Impossible) else {"expected": [str(one) for one in by_severity(plan.expected)]})
            | ({"reason": plan.reason} if isinstance(plan, NotRun) else {})
            for key, plan in plans.items()
        ],
    }


def _state(plan: Plan) -> str:
    return "impossible" if isinstance(plan, Impossible) else "not run" if isinstance(plan, NotRun) else "runs"


def plans_view(plans: Mapping[CellKey, Plan]) -> Group:
    """Three tables: windows, ways, and each cell with what is expected of it."""
    words = texts("en")
    windows = Table("window", "the fault is where", title="Windows", title_justify="left", box=None)
    for one in WINDOWS:
        if any(key.window == one.id for key in plans):
            windows.add_row(f"{one.id} {one.name}", one.boundary)
    ways = Table("strategy", "what it does", title="\nStrategies", title_justify="left", box=None)
    for way in (*STRATEGIES, *WAYS):
        if any(key.strategy == way.id for key in plans):
            ways.add_row(f"{way.id} {way.name}", way.summary)
    cells = Table("cell", "", "expected", "why", title="\nCells", title_justify="left", box=None)
    for key, plan in plans.items():
        expected = "" if isinstance(plan, Impossible) else expected_of(words, plan.expected)
        why = f"{plan.why} Not run: {plan.reason}" if isinstance(plan, NotRun) else plan.why
        cells.add_row(str(key), _state(plan), expected, why)
    return Group(windows, ways, cells)


# Results ----------------------------------------------------------------------------------------------------------


def overview(folder: Path, run: Run, written: Sequence[Path], *, json_wanted: bool) -> None:
    """The matrices, what surprised, and where the report is."""
    result = {
        "out": str(folder),
        "complete": run.complete,
        "files": [str(one) for one in written],
        "cells": [_cell(cell) for cell in in_reading_order(run)],
    }
    show(result, json_wanted=json_wanted, people=lambda: Group(terminal(run), Text(f"report: {written[0]}")))


def _cell(cell: CellResult) -> dict[str, Any]:
    """What a script wants to know of a cell; the whole is in report.json."""
    seen = {str(outcome): number for outcome, number in counts(cell)} if cell.ran else {}
    return {
        "window": cell.key.window,
        "strategy": cell.key.strategy,
        "state": state_of(cell) if not cell.ran else "ran",
        "events": len(cell.verdicts),
        "seen": seen,
        "surprises": list(surprise_lines(texts("en"), cell)),
        "trouble": cell.trouble,
    }
