"""A cell's evidence: settings, servers before and after, ends of processes, rows and records of chosen events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..model import CellResult, Exit, Facts, NotVisible, Record, Row, Verdict
from .markup import Child, Markup, cut, el, join
from .reading import by_severity, chosen, facts_of
from .texts import Texts
from .words import plain, sentence, utc

EVENTS: Final = 3
"""Events of a cell that are shown with all their rows."""
VERDICTS: Final = 40
"""Events of a cell whose verdict has a line."""
ROWS: Final = 12
"""Rows, records or processes of one kind in one table."""
TEXT: Final = 600
"""Characters of one value: an error's text may be a book."""


def evidence(texts: Texts, cell: CellResult) -> Markup:
    """Everything that supports the cell's counts."""
    return el(
        "div",
        _settings(texts, cell),
        _before_after(texts, cell),
        _exits(texts, cell.exits),
        [
            _event(texts, verdict, facts)
            for verdict in chosen(cell, EVENTS)
            if (facts := facts_of(cell, verdict.event_id)) is not None
        ],
        _verdicts(texts, cell),
        class_="evidence",
    )


# Tables -----------------------------------------------------------------------------------------------------------


def table(caption: Child, heads: Sequence[str], rows: Sequence[Sequence[Child]], *, class_: str = "") -> Markup:
    """A table with a caption and headers; the first cell of a row is its header. Where it is wide, it scrolls alone."""
    body = [el("tr", el("th", row[0], scope="row"), [el("td", one) for one in row[1:]]) for row in rows]
    whole = el(
        "table",
        el("caption", caption),
        el("thead", el("tr", [el("th", one, scope="col") for one in heads])),
        el("tbody", body),
        class_=class_ or None,
    )
    return el("div", whole, class_="scroll", tabindex=0)


def shown(texts: Texts, value: Any) -> Markup:
    """Any value of the evidence; what was not visible says so and why."""
    if isinstance(value, NotVisible):
        return el("span", el("em", texts.not_visible), f" ({cut(value.why, TEXT)})", class_="unseen")
    if isinstance(value, Mapping):
        if not value:
            return el("span", texts.none, class_="quiet")
        pairs = [
            el("div", el("dt", str(key)), el("dd", shown(texts, one))) for key, one in list(value.items())[: ROWS * 3]
        ]
        return el("dl", pairs, _more(texts, len(value) - ROWS * 3), class_="pairs")
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping | NotVisible | list) for one in value):
        items = [el("li", shown(texts, one)) for one in value[:ROWS]]
        return el("ul", items, _more(texts, len(value) - ROWS, "li"), class_="plain")
    if value is None or value in ("", [], ()):
        return el("span", texts.none, class_="quiet")
    return el("code", cut(plain(value), TEXT))


def _more(texts: Texts, number: int, element: str = "p") -> Markup | None:
    return el(element, texts.left_out(number), class_="quiet") if number > 0 else None


def _settings(texts: Texts, cell: CellResult) -> Markup | None:
    rows = [(key, shown(texts, value)) for key, value in cell.settings.items()]
    return table(texts.settings, (texts.setting, texts.value), rows, class_="kv") if rows else None


def _before_after(texts: Texts, cell: CellResult) -> Markup | None:
    names = list(dict.fromkeys([*cell.before, *cell.after]))
    empty: Markup = Markup("")
    rows = [
        (
            name,
            shown(texts, cell.before[name]) if name in cell.before else empty,
            shown(texts, cell.after[name]) if name in cell.after else empty,
        )
        for name in names
    ]
    return table(texts.before_after, ("", texts.before, texts.after), rows, class_="kv") if rows else None


def _exits(texts: Texts, exits: Sequence[Exit]) -> Markup | None:
    if not exits:
        return None
    rows = [(one.role, str(one.pid), el("code", cut(one.how, TEXT)), utc(one.at)) for one in exits[:ROWS]]
    whole = table(texts.exits, (texts.role, "pid", texts.ended, f"{texts.time} (UTC)"), rows)
    return join([whole, _more(texts, len(exits) - ROWS)])


# Events -----------------------------------------------------------------------------------------------------------


def _event(texts: Texts, verdict: Verdict, facts: Facts) -> Markup:
    """What database and broker hold of one event."""
    marks = [(f"{texts.marks}: {name}", rows) for name, rows in facts.marks.items()]
    effects = [(f"{texts.effects}: {name}", rows) for name, rows in facts.effects.items()]
    kinds: list[tuple[str, Sequence[Row] | NotVisible]] = [
        (texts.business_row, _as_rows(facts.business)),
        (texts.outbox_row, _as_rows(facts.outbox)),
        (texts.history, facts.history),
        *marks,
        *effects,
    ]
    optional = (texts.outbox_row, texts.history)  # a strategy without an outbox has neither
    lines = [line for name, rows in kinds if rows or name not in optional for line in _rows(texts, name, rows)]
    return el(
        "section",
        el(
            "h5", texts.one_event(cut(verdict.event_id, 80)), " ", el("span", _outcomes(texts, verdict), class_="quiet")
        ),
        sentence(texts, verdict.sentence, "p") if verdict.sentence else None,
        table(texts.rows, ("", texts.table, texts.columns, f"{texts.server_time} (UTC)"), lines, class_="rows"),
        _records(texts, facts.records),
        class_="event",
    )


def _as_rows(row: Row | NotVisible | None) -> Sequence[Row] | NotVisible:
    return row if isinstance(row, NotVisible) else (row,) if row else ()


def _rows(texts: Texts, name: str, rows: Sequence[Row] | NotVisible) -> list[Sequence[Child]]:
    if isinstance(rows, NotVisible):
        return [(name, "", shown(texts, rows), "")]
    if not rows:
        return [(name, "", el("span", texts.none, class_="quiet"), "")]
    lines: list[Sequence[Child]] = [
        (name if at == 0 else "", el("code", row.table), _columns(row), utc(row.at) if row.at is not None else "")
        for at, row in enumerate(rows[:ROWS])
    ]
    if len(rows) > ROWS:
        lines.append(("", "", texts.left_out(len(rows) - ROWS), ""))
    return lines


def _columns(row: Row) -> Markup:
    said = [
        el("span", el("span", f"{name}=", class_="quiet"), "NULL" if value is None else cut(value, TEXT))
        for name, value in row.columns.items()
    ]
    return el("code", join(said, " "), class_="columns")


def _records(texts: Texts, records: tuple[Record, ...] | NotVisible) -> Markup:
    heads = (texts.place, texts.headers, f"{texts.server_time} (UTC)")
    if isinstance(records, NotVisible):
        return table(texts.records, heads, [("", shown(texts, records), "")], class_="rows")
    if not records:
        return table(texts.records, heads, [("", el("span", texts.none, class_="quiet"), "")], class_="rows")
    rows: list[Sequence[Child]] = [
        (
            el("code", cut(one.place, TEXT)),
            el("code", cut(plain(dict(one.headers)), TEXT), class_="columns"),
            utc(one.at) if one.at is not None else el("span", texts.none, class_="quiet"),
        )
        for one in records[:ROWS]
    ]
    return join([table(texts.records, heads, rows, class_="rows"), _more(texts, len(records) - ROWS)])


def _outcomes(texts: Texts, verdict: Verdict) -> str:
    return ", ".join(texts.outcomes[one] for one in by_severity(verdict.outcomes))


def _verdicts(texts: Texts, cell: CellResult) -> Markup | None:
    """A line for each event, so that nobody has to believe a count."""
    if not cell.verdicts:
        return None
    consumers = list(dict.fromkeys(name for one in cell.verdicts for name in one.applied))
    heads = (texts.event, texts.database, texts.broker, *consumers, texts.outcome)
    rows: list[Sequence[Child]] = [
        (
            el("code", cut(one.event_id, 80)),
            tick(texts, one.database),
            tick(texts, one.broker),
            *(f"{one.applied[name]}" if name in one.applied else "" for name in consumers),
            _outcomes(texts, one),
        )
        for one in cell.verdicts[:VERDICTS]
    ]
    whole = table(texts.verdicts, heads, rows, class_="verdicts")
    folded = el("details", el("summary", f"{texts.verdicts} ({len(cell.verdicts)})"), whole)
    return join([folded, _more(texts, len(cell.verdicts) - VERDICTS)])


def tick(texts: Texts, value: bool | None) -> Markup:
    """✓, ✗, or that it was not visible; never a colour alone."""
    if value is None:
        return el("em", texts.not_visible)
    return el("span", "✓" if value else "✗", class_="yes" if value else "no")
