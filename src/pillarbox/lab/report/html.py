"""The report as one HTML file that needs nothing else: no network, no script, no font."""

from __future__ import annotations

from collections.abc import Sequence

from ..kafka.trial import Trial
from ..model import CellResult, Run
from .cell import anchor, cell_section
from .evidence import shown, table
from .markup import Markup, cut, el, join
from .matrix import matrix
from .reading import Grid, as_expected, grids, in_reading_order, ran, surprising, troubled
from .style import script, style
from .texts import Texts
from .trials import trials_section
from .words import clock_lines, servers, strategy_name, surprise_lines, trouble_line, utc, window_name


def page(run: Run, texts: Texts, trials: Sequence[Trial] = ()) -> str:
    """The whole file; ``trials`` are experiments with Kafka alone."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("title", texts.title),
        el("style", style()),
    )
    sending, consuming = grids(run)
    body = el(
        "body",
        _header(run, texts),
        el(
            "main",
            _results(run, texts, trials),
            el("div", id="matrix"),
            _grid(texts, sending, texts.sending, texts.sending_lead),
            _grid(texts, consuming, texts.consuming, texts.consuming_lead),
            _how(texts),
            trials_section(texts, trials),
            _cells(run, texts),
            _ran_on(run, texts),
        ),
        el("footer", el("p", texts.colophon, class_="quiet")),
        el("script", script()),
    )
    return f"<!doctype html>\n{el('html', head, body, lang=texts.language)}\n"


# Nothing is loaded from anywhere, even if something of a server's text should ever slip through unescaped.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def _header(run: Run, texts: Texts) -> Markup:
    facts, done = run.facts, ran(run)
    other, file = texts.other
    said = [
        (texts.started, f"{utc(facts.started)[:-4]} UTC"),
        (texts.lasted, texts.seconds(sum(cell.seconds for cell in run.cells))),
        *((texts.servers, one) for one in [", ".join(servers(facts))] if one),
        *((name, facts.versions[name]) for name in ("pillarbox", "Python") if name in facts.versions),
    ]
    return el(
        "header",
        el(
            "div",
            el("span", texts.kicker),
            el("a", other, href=file, lang=_code_of(other), class_="other"),
            class_="kicker",
        ),
        el("h1", texts.headline),
        el("p", texts.lead(len(done), facts.rounds, facts.seed), class_="lead"),
        el("dl", [el("div", el("dt", name), el("dd", cut(str(value), 120))) for name, value in said], class_="facts"),
    )


def _code_of(language: str) -> str:
    return "en" if language == "English" else "zh-Hans"


def _results(run: Run, texts: Texts, trials: Sequence[Trial]) -> Markup:
    """First of all: what surprised, what was not finished, whether the run was."""
    surprised, stuck = surprising(run), troubled(run)
    odd = [one for one in trials if one.as_expected is False]
    done = len(ran(run))
    boxes: list[Markup] = []
    if not run.complete:
        boxes.append(el("div", el("p", texts.incomplete), class_="result pause"))
    if odd:
        lines = [el("li", el("a", el("b", one.id), f" {one.title}", href="#kafka"), ": ", one.sentence) for one in odd]
        boxes.append(_box(texts.kafka_surprised(len(odd)), texts.surprised_lead, lines))
    if surprised:
        lines = [el("li", _link(texts, cell), ": ", "; ".join(surprise_lines(texts, cell))) for cell in surprised]
        boxes.append(_box(texts.surprised(len(surprised)), texts.surprised_lead, lines))
    if stuck:
        lines = [el("li", _link(texts, cell), ": ", cut(trouble_line(cell), 300)) for cell in stuck]
        boxes.append(_box(texts.troubled(len(stuck)), texts.troubled_lead, lines))
    if as_expected(run) and run.complete and not odd:
        said = texts.all_expected(done) if done else texts.nothing_ran
        boxes.append(el("div", el("p", "✓ " if done else "", said), class_="result good" if done else "result pause"))
    return join(boxes)


def _box(title: str, lead: str, lines: list[Markup]) -> Markup:
    return el("section", el("h2", title), el("p", lead), el("ul", lines), class_="result alarm")


def _link(texts: Texts, cell: CellResult) -> Markup:
    names = f"{window_name(texts, cell.key.window).name}, {strategy_name(texts, cell.key.strategy).name}"
    return el("a", el("b", f"{cell.key.window}-{cell.key.strategy}"), f" ({names})", href=f"#{anchor(cell)}")


def _grid(texts: Texts, grid: Grid, title: str, lead: str) -> Markup | None:
    if not grid.rows:
        return None
    return el("section", el("h2", title), el("p", lead, class_="quiet"), matrix(texts, grid, title))


def _how(texts: Texts) -> Markup:
    words = [
        (el("dt", texts.outcomes[outcome]), el("dd", sentence)) for outcome, sentence in texts.outcome_sentences.items()
    ]
    return el(
        "section",
        el("h2", texts.how_to_read),
        [el("p", one) for one in texts.how_paragraphs],
        el("dl", words, class_="words"),
    )


def _cells(run: Run, texts: Texts) -> Markup | None:
    cells = in_reading_order(run)
    if not cells:
        return None
    buttons = [
        el("button", words, type="button", id=name, class_="all needs-script")
        for name, words in (("open-all", texts.open_all), ("close-all", texts.close_all))
    ]
    sections = [cell_section(texts, run.facts, cell) for cell in cells]
    return el("section", el("h2", texts.cells), el("p", buttons), sections)


def _ran_on(run: Run, texts: Texts) -> Markup:
    facts = run.facts
    versions = [(name, el("code", cut(str(value), 300))) for name, value in facts.versions.items()]
    about = [(name, shown(texts, value)) for name, value in facts.servers.items()]
    return el(
        "section",
        el("h2", texts.ran_on),
        table(texts.versions, ("", ""), versions, class_="kv") if versions else None,
        table(texts.servers, ("", ""), about, class_="kv") if about else None,
        [el("p", line, class_="quiet") for line in clock_lines(texts, facts)],
        [el("h4", texts.command), el("pre", el("code", facts.command))] if facts.command else None,
    )
