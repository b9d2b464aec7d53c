"""The matrices: windows down, ways of sending or consuming across, what was left behind in each cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..model import CellResult, Impossible, NotRun, Outcome
from .cell import anchor
from .markup import Markup, el, join
from .reading import HARMFUL, Grid, counts
from .texts import Texts
from .words import expected_of, sentence, state_of, strategy_name, window_name

_SIGNS: Final = {
    "good": "✓",
    "wire": "≡",
    "harm": "✕",
    "surprise": "!",
    "trouble": "?",
    "notrun": "○",
    "impossible": "-",
}


def matrix(texts: Texts, grid: Grid, caption: str) -> Markup:
    """One grid as a table. On a narrow screen its rows become lists, so each cell names its column, too.

    Why a cell is impossible or was not run stands below: a few reasons serve many cells.
    """
    notes = _notes(grid)
    table = el(
        "table",
        el("caption", caption),
        el("thead", el("tr", el("th", texts.window, scope="col"), [_head(texts, one) for one in grid.columns])),
        el("tbody", [_row(texts, grid, window, notes) for window in grid.rows]),
        class_="matrix",
    )
    reasons = [el("li", sentence(texts, reason)) for reason in notes]
    return join([el("div", table, class_="scroll", tabindex=0), el("ol", reasons, class_="notes") if notes else None])


def _notes(grid: Grid) -> Mapping[str, int]:
    """Each reason once, numbered in the order in which it is met."""
    reasons = [
        cell.plan.reason if isinstance(cell.plan, NotRun) else cell.plan.why
        for window in grid.rows
        for strategy in grid.columns
        if (cell := grid.at(window, strategy)) is not None and isinstance(cell.plan, NotRun | Impossible)
    ]
    return {reason: number for number, reason in enumerate(dict.fromkeys(reasons), start=1)}


def _head(texts: Texts, strategy: str) -> Markup:
    return el("th", el("b", strategy), " ", el("span", strategy_name(texts, strategy).name), scope="col")


def _row(texts: Texts, grid: Grid, window: str, notes: Mapping[str, int]) -> Markup:
    named = window_name(texts, window)
    return el(
        "tr",
        el("th", el("b", window), " ", el("span", named.name), " ", el("small", named.sentence), scope="row"),
        [_cell(texts, strategy, grid.at(window, strategy), notes) for strategy in grid.columns],
    )


def _cell(texts: Texts, strategy: str, cell: CellResult | None, notes: Mapping[str, int]) -> Markup:
    label = el("span", f"{strategy} {strategy_name(texts, strategy).name}", class_="label", aria_hidden="true")
    if cell is None:
        return el("td", label, el("span", texts.not_part, class_="quiet"), class_="absent")
    state = state_of(cell)
    sign = el("span", _SIGNS[state], class_="sign", aria_hidden="true")
    link = el("a", sign, el("span", _said(texts, cell, notes), class_="said"), href=f"#{anchor(cell)}")
    return el("td", label, link, class_=state)


def _said(texts: Texts, cell: CellResult, notes: Mapping[str, int]) -> list[Markup]:
    plan = cell.plan
    if isinstance(plan, Impossible):
        return [el("span", texts.impossible, el("sup", notes[plan.why]))]
    if isinstance(plan, NotRun):
        return [
            el("span", texts.not_run, el("sup", notes[plan.reason])),
            el("small", expected_of(texts, plan.expected)),
        ]
    if cell.trouble is not None:
        return [el("span", texts.trouble)]
    tag = [el("strong", texts.unexpected, class_="tag")] if cell.surprises else []
    lines = [el("span", texts.counted(one, number), class_=_weight(one)) for one, number in counts(cell)]
    if cell.surprises:
        small = f"{texts.expected}: {expected_of(texts, plan.expected)}"
    else:
        calm = [outcome for outcome, _ in counts(cell)] == [Outcome.NOTHING]
        small = "" if calm else texts.of_events(len(cell.verdicts))
    return [*tag, *lines, *([el("small", small)] if small else [])]


def _weight(outcome: Outcome) -> str:
    return "bad" if outcome in HARMFUL else "soft" if outcome is Outcome.DUPLICATE else "fine"
