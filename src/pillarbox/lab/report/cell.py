"""One cell of the matrix, opened: why, what came out, the two questions, the picture, the evidence, the command."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import CellResult, Impossible, NotRun, Outcome, Planned, RunFacts
from .evidence import evidence, table
from .markup import Child, Markup, cut, el, join
from .reading import agreement, applied, by_severity, chosen, moments_of
from .texts import Texts
from .timeline import LIMIT, legend, picture, relative
from .words import clock_lines, counted, expected_of, sentence, state_of, strategy_name, surprise_lines, window_name


def cell_section(texts: Texts, facts: RunFacts, cell: CellResult) -> Markup:
    """The cell as a ``details`` element. Its anchor is inside: browsers open what a link into it leads to."""
    return el(
        "details",
        _summary(texts, cell),
        el(
            "div",
            surprises(texts, cell),
            _why(texts, cell),
            _judged(texts, facts, cell, cell.plan) if isinstance(cell.plan, Planned) and cell.ran else None,
            el("h4", texts.again) if cell.command else None,
            el("pre", el("code", cell.command)) if cell.command else None,
            el("p", el("a", texts.back, href="#matrix"), class_="back"),
            id=anchor(cell),
            class_="inside",
        ),
        class_=f"cell {state_of(cell)}",
    )


def anchor(cell: CellResult) -> str:
    """What links to the cell lead to."""
    return str(cell.key)


def headline(texts: Texts, cell: CellResult) -> str:
    """What came out, in the words of the matrix."""
    match cell.plan:
        case Impossible():
            return texts.impossible
        case NotRun():
            return f"{texts.not_run}: {expected_of(texts, cell.plan.expected)}"
        case Planned() if cell.trouble is not None:
            return texts.trouble
    return counted(texts, cell)


def surprises(texts: Texts, cell: CellResult) -> Markup | None:
    """The box of a cell in which reality was not what is expected."""
    lines = surprise_lines(texts, cell)
    return el("ul", [el("li", one) for one in lines], class_="surprises") if lines else None


def _summary(texts: Texts, cell: CellResult) -> Markup:
    window, strategy = window_name(texts, cell.key.window), strategy_name(texts, cell.key.strategy)
    tag = el("strong", texts.unexpected, class_="tag") if cell.surprises else None
    return el(
        "summary",
        el("span", cell.key.window, " \u00d7 ", cell.key.strategy, class_="key"),
        " ",
        el("span", el("b", window.name), el("span", strategy.name, class_="quiet"), class_="names"),
        " ",
        el("span", tag, " " if tag else None, headline(texts, cell), class_="came"),
    )


def _why(texts: Texts, cell: CellResult) -> Markup:
    reason = [el("b", texts.reason), " ", sentence(texts, cell.plan.reason)] if isinstance(cell.plan, NotRun) else None
    window = window_name(texts, cell.key.window).sentence
    strategy = strategy_name(texts, cell.key.strategy).sentence
    return join(
        [
            el("p", window, " ", strategy, class_="quiet") if window or strategy else None,
            sentence(texts, cell.plan.why, "p", class_="why"),
            el("p", reason) if reason else None,
            el("pre", cut(cell.trouble, 4000), class_="trouble-text") if cell.trouble is not None else None,
        ]
    )


# What came out ----------------------------------------------------------------------------------------------------


def _judged(texts: Texts, facts: RunFacts, cell: CellResult, plan: Planned) -> Markup:
    return join(
        [
            el("div", _outcomes(texts, cell, plan), _agreement(texts, cell), _applied(texts, cell), class_="tables"),
            _story(texts, facts, cell),
            el("h4", texts.evidence),
            evidence(texts, cell),
        ]
    )


def _outcomes(texts: Texts, cell: CellResult, plan: Planned) -> Markup:
    """Seen against expected: every outcome that is either."""
    seen = {one for verdict in cell.verdicts for one in verdict.outcomes}
    rows: list[Sequence[Child]] = []
    for outcome in by_severity((plan.expected | plan.possible | seen) - {Outcome.NOTHING}):
        number = cell.count(outcome)
        if outcome in cell.surprises:
            said = "unexpected" if number else "missing"
        else:
            said = "expected" if outcome in plan.expected else "possible"
        rows.append((texts.outcomes[outcome], f"{number:,}", texts.comes_out[said]))
    calm = sum(verdict.outcomes <= {Outcome.NOTHING} for verdict in cell.verdicts)
    if calm or not rows:
        rows.append((texts.outcomes[Outcome.NOTHING], f"{calm:,}", "" if rows else texts.comes_out["expected"]))
    caption = f"{texts.seen}, {texts.of_events(len(cell.verdicts))}"
    return table(caption, (texts.outcome, texts.events, ""), rows, class_="numbers")


def _agreement(texts: Texts, cell: CellResult) -> Markup:
    """The square: the diagonal is agreement. The third column only where a broker would not tell."""
    found = agreement(cell)
    columns: list[tuple[bool | None, str]] = [(True, f"✓ {texts.has_message}"), (False, f"✗ {texts.no_message}")]
    if any(broker is None for _, broker in found):
        columns.append((None, texts.not_visible))
    rows = [
        el(
            "tr",
            el("th", mark, scope="row"),
            [_number(found.get((database, broker), 0), agree=database is broker) for broker, _ in columns],
        )
        for database, mark in ((True, f"✓ {texts.has_row}"), (False, f"✗ {texts.no_row}"))
    ]
    whole = el(
        "table",
        el("caption", texts.both_caption),
        el(
            "thead",
            el(
                "tr",
                el("th", f"{texts.database} ↓ {texts.broker} →", scope="col"),
                [el("th", one, scope="col") for _, one in columns],
            ),
        ),
        el("tbody", rows),
        class_="square",
    )
    return el("div", whole, class_="scroll", tabindex=0)


def _number(number: int, *, agree: bool) -> Markup:
    return el("td", f"{number:,}", class_="zero" if not number else "agree" if agree else "differ")


def _applied(texts: Texts, cell: CellResult) -> Markup | None:
    by_consumer = applied(cell)
    if not by_consumer:
        return None
    times = sorted({number for found in by_consumer.values() for number in found} | {0, 1})
    rows = [
        (consumer_name(texts, name), *(f"{found.get(number, 0):,}" for number in times))
        for name, found in by_consumer.items()
    ]
    return table(texts.applied_caption, (texts.consumer, *(texts.times(one) for one in times)), rows, class_="numbers")


def consumer_name(texts: Texts, name: str) -> str:
    """``C2 Inbox`` for one of the lab's own ways of consuming, else its name."""
    return f"{name} {texts.strategies[name].name}" if name in texts.strategies else name


# What happened ----------------------------------------------------------------------------------------------------


def _story(texts: Texts, facts: RunFacts, cell: CellResult) -> Markup:
    """The picture of one of the worst events, and the same as a table for those who cannot see it."""
    verdicts = chosen(cell, 1)
    moments = moments_of(cell, verdicts[0].event_id) if verdicts else ()
    head = el("h4", texts.timeline)
    if not moments:
        return join([head, el("p", texts.no_timeline, class_="quiet")])
    start = moments[0].at
    rows: list[Sequence[Child]] = [
        (
            relative(one.at - start),
            texts.lanes[one.lane],
            [
                el("b", f"{texts.fault if one.kind == 'fault' else texts.end}: ") if one.kind != "step" else None,
                sentence(texts, cut(one.what, 400)),
            ],
            texts.sources[one.source],
        )
        for one in moments[:LIMIT]
    ]
    left = len(moments) - LIMIT
    return join(
        [
            head,
            el(
                "figure",
                el("div", picture(texts, moments, name=f"{anchor(cell)}-p"), class_="scroll", tabindex=0),
                legend(texts),
                el(
                    "figcaption",
                    texts.timeline_of(cut(verdicts[0].event_id, 80), len(cell.verdicts) - 1),
                    [f" {line}" for line in clock_lines(texts, facts)],
                    f" {texts.left_out(left)}" if left > 0 else None,
                ),
            ),
            el(
                "details",
                el("summary", texts.as_text),
                table(texts.timeline, (texts.time, texts.lane, texts.what, texts.source), rows),
                class_="as-text",
            ),
        ]
    )
