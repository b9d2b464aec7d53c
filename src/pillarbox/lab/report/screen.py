"""The report on a terminal: the matrices, what surprised, and what could not be finished."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..model import CellResult, Impossible, NotRun, Run
from .markup import cut, printable
from .reading import Grid, as_expected, counts, grids, ran, surprising, troubled
from .texts import Texts, texts
from .words import expected_of, state_of, strategy_name, surprise_lines, trouble_line, window_name

_STYLES = {
    "good": "green",
    "wire": "yellow",
    "harm": "red",
    "surprise": "bold magenta",
    "trouble": "bold magenta",
    "notrun": "dim",
    "impossible": "dim",
}


def overview(run: Run) -> RenderableType:
    """Both matrices and the last word on the run."""
    words = texts("en")
    titles = (words.sending, words.consuming)
    tables = [_matrix(words, grid, title) for grid, title in zip(grids(run), titles, strict=True) if grid.rows]
    return Group(*tables, *result_lines(run))


def result_lines(run: Run) -> list[Text]:
    """One line per surprise and per cell that was not finished, or that there is none."""
    words = texts("en")
    lines = [Text(words.incomplete)] if not run.complete else []
    for cell in surprising(run):
        lines.append(Text(f"{words.unexpected}: {cell.key}: {'; '.join(surprise_lines(words, cell))}", "bold magenta"))
    for cell in troubled(run):
        said = " ".join(printable(cut(trouble_line(cell), 300)).split())
        lines.append(Text(f"{words.trouble}: {cell.key}: {said}", "bold magenta"))
    if as_expected(run) and ran(run):
        lines.append(Text(words.all_expected(len(ran(run))), "green"))
    elif not ran(run) and not lines:
        lines.append(Text(words.nothing_ran))
    return lines


def _matrix(words: Texts, grid: Grid, title: str) -> Table:
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column(words.window, min_width=12)
    for one in grid.columns:
        table.add_column(Text(f"{one} {strategy_name(words, one).name}"))
    for window in grid.rows:
        cells = [_cell(words, grid.at(window, one)) for one in grid.columns]
        table.add_row(Text(f"{window} {window_name(words, window).name}"), *cells)
    return table


def _cell(words: Texts, cell: CellResult | None) -> Text:
    if cell is None:
        return Text("·", "dim")
    style = _STYLES[state_of(cell)]
    if isinstance(cell.plan, Impossible):
        return Text("-", style)
    if isinstance(cell.plan, NotRun):
        return Text(f"{words.not_run}: {expected_of(words, cell.plan.expected)}", style)
    if cell.trouble is not None:
        return Text(words.trouble, style)
    said = "\n".join(words.counted(outcome, number) for outcome, number in counts(cell))
    return Text(f"{words.unexpected}:\n{said}" if cell.surprises else said, style)
