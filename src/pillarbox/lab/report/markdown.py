"""The report as Markdown, for a pull request or a wiki: the matrices, and a short section for each cell. In English."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import CellResult, Impossible, NotRun, Planned, Run
from .cell import headline
from .markup import cut, printable
from .reading import Grid, agreement, applied, as_expected, grids, in_reading_order, ran, surprising, troubled
from .texts import Texts, texts
from .words import expected_of, plain, servers, strategy_name, surprise_lines, trouble_line, utc, window_name


def document(run: Run) -> str:
    """The whole file."""
    words = texts("en")
    facts = run.facts
    versions = ", ".join([*servers(facts), *(f"{name} {value}" for name, value in facts.versions.items())])
    parts = [
        f"# {words.title}",
        _safe(words.lead(len(ran(run)), facts.rounds, facts.seed)),
        _safe(f"Started {utc(facts.started)} UTC. {versions}."),
        *_results(run, words),
        *(
            _matrix(words, grid, title)
            for grid, title in zip(grids(run), (words.sending, words.consuming), strict=True)
        ),
        *(_cell(words, cell) for cell in in_reading_order(run)),
        *((f"## {words.command}", _code(facts.command)) if facts.command else ()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _results(run: Run, words: Texts) -> list[str]:
    lines = [] if run.complete else [words.incomplete]
    for cell in surprising(run):
        lines.append(f"**{cell.key}**: {_safe('; '.join(surprise_lines(words, cell)))}")
    for cell in troubled(run):
        lines.append(f"**{cell.key}** {words.trouble}: {_safe(cut(trouble_line(cell), 300))}")
    if as_expected(run) and run.complete:
        lines.append(words.all_expected(len(ran(run))) if ran(run) else words.nothing_ran)
    return lines


def _matrix(words: Texts, grid: Grid, title: str) -> str:
    if not grid.rows:
        return ""
    heads = [words.window, *(f"{one} {strategy_name(words, one).name}" for one in grid.columns)]
    rows = [
        [
            f"{window} {window_name(words, window).name}",
            *(_in_matrix(words, grid.at(window, one)) for one in grid.columns),
        ]
        for window in grid.rows
    ]
    return f"## {title}\n\n{_table(heads, rows)}"


def _in_matrix(words: Texts, cell: CellResult | None) -> str:
    if cell is None:
        return words.not_part
    mark = f"**{words.unexpected}**: " if cell.surprises else ""
    return mark + headline(words, cell)


def _cell(words: Texts, cell: CellResult) -> str:
    window, strategy = window_name(words, cell.key.window), strategy_name(words, cell.key.strategy)
    parts = [f"### {_safe(f'{cell.key}: {window.name}; {strategy.name}')}", _safe(cell.plan.why)]
    match cell.plan:
        case Impossible():
            return "\n\n".join([parts[0], f"{words.impossible}. {parts[1]}"])
        case NotRun():
            return "\n\n".join([*parts, _safe(f"{headline(words, cell)}. {words.reason} {cell.plan.reason}")])
        case Planned() if cell.trouble is not None:
            return "\n\n".join([*parts, f"{words.trouble}:", _code(cut(cell.trouble, 2000))])
    expected = f"{words.expected}: {expected_of(words, cell.plan.expected)}"
    parts.append(_safe(f"{words.seen}: {headline(words, cell)}, {words.of_events(len(cell.verdicts))}; {expected}."))
    parts.append(_both(words, cell))
    parts.append(_settings(words, cell))
    parts.append(_code(cell.command))
    return "\n\n".join(part for part in parts if part)


def _both(words: Texts, cell: CellResult) -> str:
    """DB and MQ as counts, and how often each consumer applied an event, in one line each."""
    signs = {True: "✓", False: "✗", None: words.not_visible}
    found = agreement(cell)
    lines = [
        f"- {words.database} {signs[database]}, {words.broker} {signs[broker]}: {number}"
        for (database, broker), number in sorted(found.items(), key=lambda one: str(one[0]), reverse=True)
    ]
    for consumer, times in applied(cell).items():
        said = ", ".join(f"{words.times(number)} {count}" for number, count in sorted(times.items()))
        lines.append(_safe(f"- {consumer}: {said}"))
    return "\n".join(lines)


def _settings(words: Texts, cell: CellResult) -> str:
    said = [f"{name} {cut(plain(value), 120)}" for name, value in cell.settings.items()]
    return _safe(f"{words.settings}: {'; '.join(said)}.") if said else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_safe(one).replace('|', chr(92) + '|') for one in line)} |" for line in lines)


def _safe(text: str) -> str:
    """Text of a server's on one line, without a meaning in Markdown or HTML."""
    flat = " ".join(printable(text).split())
    return "".join(f"\\{one}" if one in "\\`<>[]_#" else one for one in flat).replace("&", "&amp;")


def _code(text: str) -> str:
    """A block that no run of backticks in ``text`` can end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{printable(text)}\n{fence}" if text else ""
