"""Small phrases that several forms of the report share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ..model import CellResult, NotVisible, Outcome, Planned, RunFacts
from .markup import Markup, el
from .reading import by_severity, counts, missing, unexpected
from .texts import Named, Texts


def window_name(texts: Texts, window: str) -> Named:
    """The window in words; its id where the report has none (a later release's)."""
    return texts.windows.get(window, Named(window, ""))


def strategy_name(texts: Texts, strategy: str) -> Named:
    """The strategy or way of consuming in words; its id where the report has none."""
    return texts.strategies.get(strategy, Named(strategy, ""))


def sentence(texts: Texts, english: str, element: str = "span", **attributes: str) -> Markup:
    """One of the lab's own sentences in the report's language, or the English one, marked as English."""
    here = texts.said(english)
    foreign = here is None
    return el(element, here or english, lang="en" if foreign else None, **attributes)


def expected_of(texts: Texts, outcomes: Iterable[Outcome]) -> str:
    """``ghost, duplicate`` or that nothing is expected to be left behind."""
    named = [texts.outcomes[one] for one in by_severity(outcomes) if one is not Outcome.NOTHING]
    return ", ".join(named) or texts.nothing_expected


def counted(texts: Texts, cell: CellResult) -> str:
    """``20 ghosts, 3 duplicates``."""
    return ", ".join(texts.counted(outcome, number) for outcome, number in counts(cell))


def surprise_lines(texts: Texts, cell: CellResult) -> tuple[str, ...]:
    """One sentence for each thing that was seen and not expected, or expected and not seen."""
    events = len(cell.verdicts)
    return (
        *(texts.seen_unexpected(cell.count(one), events, texts.outcomes[one]) for one in unexpected(cell)),
        *(texts.not_seen(texts.outcomes[one]) for one in missing(cell)),
    )


def trouble_line(cell: CellResult) -> str:
    """Why a cell was not finished: without its own name, which stands before it, and without the log's end.

    >>> from pillarbox.lab.model import CellKey, Impossible
    >>> trouble_line(CellResult(CellKey("W1", "S1"), Impossible(""), trouble="W1-S1: it has ended. Log: a\\nb"))
    'it has ended.'
    """
    return (cell.trouble or "").removeprefix(f"{cell.key}: ").partition(" Log: ")[0]


def state_of(cell: CellResult) -> str:
    """One word for styles: ``good``, ``harm``, ``wire``, ``surprise``, ``trouble``, ``notrun`` or ``impossible``."""
    if not isinstance(cell.plan, Planned):
        return "notrun" if hasattr(cell.plan, "expected") else "impossible"
    if cell.trouble is not None:
        return "trouble"
    if cell.surprises:
        return "surprise"
    seen = {outcome for outcome, _ in counts(cell)}
    return "good" if seen == {Outcome.NOTHING} else "wire" if seen == {Outcome.DUPLICATE} else "harm"


def servers(facts: RunFacts) -> tuple[str, ...]:
    """The names and versions of the database and the broker, as far as the run has met them."""
    found = []
    for kind in ("database", "broker"):
        about = facts.servers.get(kind)
        if isinstance(about, Mapping):
            words = [about.get(kind), about.get("server_version")]
            found.append(" ".join(plain(one) for one in words if one and not isinstance(one, NotVisible)))
    return tuple(one for one in found if one)


def utc(moment: float) -> str:
    """A moment to the millisecond, in UTC."""
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    except (OverflowError, OSError, ValueError):
        return str(moment)


def clock_lines(texts: Texts, facts: RunFacts) -> tuple[str, ...]:
    """That there is one clock, and how far each server's was from it."""
    lines = [texts.clocks]
    for server, offset in facts.clock_offsets.items():
        if isinstance(offset, NotVisible):
            lines.append(texts.clock_unknown(server, offset.why))
        else:
            lines.append(texts.clock_of(server, f"{offset * 1000:+.1f} ms" if abs(offset) < 1 else f"{offset:+.3f} s"))
    return tuple(lines)


def plain(value: Any) -> str:
    """A setting's value on one line, as the server or client spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(one) for one in value)
    return "-" if value is None else str(value)
