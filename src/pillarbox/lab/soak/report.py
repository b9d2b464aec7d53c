"""The soak's report: JSON for tools, Markdown to keep, a table for the terminal. All from one result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..json_values import to_json
from ..model import NotVisible
from ..results import as_text, write_whole
from .happened import kills_by_point
from .result import Evidence, SoakResult

JSON_NAME: Final = "soak.json"
PAGE_NAME: Final = "soak.md"

_BARS: Final = " ▁▂▃▄▅▆▇█"
_COLUMNS: Final = 60
_MOST_LINES: Final = 40  # of a group of settings; a longer one stays one line


def write(folder: Path, result: SoakResult) -> None:
    """Write both files into ``folder``, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / JSON_NAME, as_text(as_json(result)))
    write_whole(folder / PAGE_NAME, page(result))


def as_json(result: SoakResult) -> dict[str, Any]:
    """Everything, and the figures that are computed from it."""
    data: dict[str, Any] = to_json(result)
    data["figures"] = dict(figures(result))
    data["kills_by_point"] = {f"{role} {point}": n for (role, point), n in sorted(_kills(result).items())}
    data["passed"] = result.passed
    return data


def figures(result: SoakResult) -> Iterator[tuple[str, Any]]:
    """The figures that sum it up, by name."""
    found = result.accounts
    yield "kills", result.kills
    yield "freezes", result.count("freeze")
    yield "links broken", result.count("link")
    yield "commands run", result.count("disturb")
    yield "events committed", found.business
    yield "records in the broker", found.records
    yield "duplicates on the wire", found.duplicates
    yield "events sent more than once", found.repeated
    yield "most copies of one event", found.most
    yield "applied", found.applied
    yield "ghosts", found.count("ghost")
    yield "losses", found.count("loss")
    yield "not applied", found.count("not applied")
    yield "applied twice", found.count("applied twice")
    yield "order breaks", found.out_of_order
    yield "not finished", found.count("unfinished")
    yield "rows that do not fit", found.count("tables")
    yield "taken for poison and replayed", result.suspects
    yield "peak backlog", result.peak_backlog
    yield "seconds to drain", round(result.drain_seconds, 1)


def verdict(result: SoakResult) -> str:
    """One sentence."""
    if not result.drained:
        return f"Not everything was sent and applied within {result.options['drain']:g} s after the last fault."
    if result.passed:
        events = f"{result.accounts.business:,} events"
        return f"{result.kills:,} kills, {events}: none lost, none invented, none applied twice."
    return f"{len(result.accounts.findings):,} findings: a promise was broken."


# Terminal -----------------------------------------------------------------------------------------------------------


def terminal(result: SoakResult) -> Group:
    """For a person at a terminal."""
    counts = Table(title="Soak", title_justify="left")
    counts.add_column("what")
    counts.add_column("how many", justify="right")
    for name, value in figures(result):
        counts.add_row(name, f"{value:,}")
    kills = Table(title="Kills", title_justify="left")
    for column in ("role", "at"):
        kills.add_column(column)
    kills.add_column("times", justify="right")
    for (role, point), times in sorted(_kills(result).items()):
        kills.add_row(role, point, str(times))
    last = Text(verdict(result), style="green" if result.passed else "bold red")
    return Group(counts, kills, *(Text(_sentence(one)) for one in result.evidence), last)


# Markdown -----------------------------------------------------------------------------------------------------------


def page(result: SoakResult) -> str:
    """A page that can be kept and read by itself."""
    return "\n".join(_page(result)) + "\n"


def _page(result: SoakResult) -> Iterator[str]:
    began = datetime.fromtimestamp(result.began, UTC).strftime("%Y-%m-%d %H:%M UTC")
    yield from ("# Soak", "", f"**{verdict(result)}**", "", f"Begun {began}, {result.seconds:.0f} s in all.")
    if not result.complete:
        yield "The storm was ended before its time."
    yield from ("", "```sh", result.command or "pillarbox lab soak", "```", "")
    yield from _table("What there is", ("what", "how many"), ((name, f"{value:,}") for name, value in figures(result)))
    rows = ((role, f"`{point}`", str(times)) for (role, point), times in sorted(_kills(result).items()))
    yield from _table("Kills", ("role", "at", "times"), rows)
    yield from _table("All faults", ("fault", "times"), ((name, str(times)) for name, times in result.faults.items()))
    for link, why in result.links_absent.items():
        yield f"The link to {link} was not broken: {why}."
    yield ""
    yield from _over_time(result)
    if result.evidence:
        yield from ("## Evidence", "")
        for one in result.evidence:
            yield from _chain(one)
    about = [
        *_flat("machine", result.machine),
        *_flat("version", result.versions),
        *_flat("", result.servers),
        *_flat("option", result.options),
        *_flat("processes started", result.starts),
    ]
    yield from _table("How it was run", ("what", "value"), about)


def _over_time(result: SoakResult) -> Iterator[str]:
    if not result.samples:
        return
    first, last = result.samples[0].at, max(result.samples[-1].at, result.samples[0].at + 1)

    def column(at: float) -> int:
        return min(_COLUMNS - 1, max(0, int((at - first) / (last - first) * _COLUMNS)))

    kills, waiting = [0] * _COLUMNS, [0] * _COLUMNS
    for one in result.happened:
        if one.kind == "kill":
            kills[column(one.at)] += 1
    for sample in result.samples:
        at = column(sample.at)
        waiting[at] = max(waiting[at], sample.waiting)
    yield from ("## Over time", "", f"Each column is {(last - first) / _COLUMNS:.1f} s.", "", "```text")
    yield f"kills    |{_bars(kills)}| at most {max(kills):,}"
    yield f"backlog  |{_bars(waiting)}| at most {max(waiting):,}"
    yield from ("```", "")


def _bars(values: list[int]) -> str:
    most = max(values) or 1
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // most)] for value in values)


def _chain(one: Evidence) -> Iterator[str]:
    yield from (f"### {one.finding.event_id}", "", _sentence(one), "", "```json")
    yield from (json.dumps(to_json(one.facts), ensure_ascii=False, indent=1), "```", "")


def _sentence(one: Evidence) -> str:
    return f"{one.finding.kind}: {one.finding.sentence} ({one.finding.event_id}) {one.verdict.sentence}".strip()


def _table(title: str, head: tuple[str, ...], rows: Any) -> Iterator[str]:
    yield from (f"## {title}", "", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head))
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
    yield ""


def _flat(name: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        path = f"{name} {key}".strip()
        if isinstance(value, Mapping) and len(value) <= _MOST_LINES:
            yield from _flat(path, value)
        else:
            yield path, _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, NotVisible):
        return f"not visible: {value.why}"
    if isinstance(value, tuple | list):
        return ", ".join(_shown(one) for one in value)
    return (f"{value:g}" if isinstance(value, float) else str(value))[:300]


def _kills(result: SoakResult) -> Mapping[tuple[str, str], int]:
    return kills_by_point(result.happened)
