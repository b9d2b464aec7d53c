"""The matrices: windows down, ways of sending or consuming across, what was left behind in each cell."""

from __future__ import annotations

from ..model import CellResult, Impossible, NotRun, Outcome, Planned
from .cell import anchor
from .markup import Markup, el
from .reading import HARMFUL, Grid, counts
from .texts import Texts
from .words import expected_of, sentence, state_of, strategy_name, window_name

_SIGNS = {"good": "✓", "wire": "≡", "harm": "✕", "surprise": "!", "trouble": "?", "notrun": "○", "impossible": "-"}


def matrix(texts: Texts, grid: Grid, caption: str) -> Markup:
    """One grid as a table. On a narrow screen its rows become lists, so each cell names its column, too."""
    return el(
        "div",
        el(
            "table",
            el("caption", caption),
            el("thead", el("tr", el("th", texts.window, scope="col"), [_head(texts, one) for one in grid.columns])),
            el("tbody", [_row(texts, grid, window) for window in grid.rows]),
            class_="matrix",
        ),
        class_="scroll",
        tabindex=0,
    )


def _head(texts: Texts, strategy: str) -> Markup:
    return el("th", el("b", strategy), " ", el("span", strategy_name(texts, strategy).name), scope="col")


def _row(texts: Texts, grid: Grid, window: str) -> Markup:
    named = window_name(texts, window)
    return el(
        "tr",
        el("th", el("b", window), " ", el("span", named.name), " ", el("small", named.sentence), scope="row"),
        [_cell(texts, strategy, grid.at(window, strategy)) for strategy in grid.columns],
    )


def _cell(texts: Texts, strategy: str, cell: CellResult | None) -> Markup:
    label = el("span", f"{strategy} {strategy_name(texts, strategy).name}", class_="label", aria_hidden="true")
    if cell is None:
        return el("td", label, el("span", texts.not_part, class_="quiet"), class_="absent")
    state = state_of(cell)
    sign = el("span", _SIGNS[state], class_="sign", aria_hidden="true")
    return el(
        "td", label, el("a", sign, el("span", _said(texts, cell), class_="said"), href=f"#{anchor(cell)}"), class_=state
    )


def _said(texts: Texts, cell: CellResult) -> list[Markup]:
    plan = cell.plan
    if isinstance(plan, Impossible):
        return [el("span", texts.impossible), sentence(texts, plan.why, "small")]
    if isinstance(plan, NotRun):
        return [el("span", texts.not_run), el("small", expected_of(texts, plan.expected))]
    if cell.trouble is not None:
        return [el("span", texts.trouble)]
    tag = [el("strong", texts.unexpected, class_="tag")] if cell.surprises else []
    lines = [el("span", texts.counted(one, number), class_=_weight(one)) for one, number in counts(cell)]
    calm = [outcome for outcome, _ in counts(cell)] == [Outcome.NOTHING]
    expected = expected_of(texts, plan.expected) if cell.surprises and isinstance(plan, Planned) else ""
    small = f"{texts.expected}: {expected}" if expected else texts.of_events(len(cell.verdicts))
    return [*tag, *lines, *([] if calm and not expected else [el("small", small)])]


def _weight(outcome: Outcome) -> str:
    return "bad" if outcome in HARMFUL else "soft" if outcome is Outcome.DUPLICATE else "fine"
