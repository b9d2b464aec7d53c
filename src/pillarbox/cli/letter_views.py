"""A consumer's dead letters as a table for people and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table

from ..consume.deadletters import Letter, Replayed
from .output import counted


def letters_as_dict(letters: Sequence[Letter]) -> dict[str, object]:
    """For JSON; the body stays where it is."""
    return {"dead_letters": [_as_dict(letter) for letter in letters]}


def letters_table(letters: Sequence[Letter]) -> Group:
    """One line a letter."""
    if not letters:
        return Group("No dead letters.")
    table = Table(box=None)
    for name in ("event id", "place", "type", "key", "bytes", "attempts", "given up at", "reason"):
        table.add_column(name, overflow="fold")
    for one in letters:
        what = (one.event_id or "-", one.place, one.event_type or "-", one.key or "-", str(one.size))
        table.add_row(*what, one.attempts, one.given_up_at, one.reason)
    return Group(table)


def report_text(report: Replayed, *, dry_run: bool) -> str:
    """What became of a replay, in one sentence."""
    if dry_run:
        return f"{counted(report.matched, 'dead letter matches', 'dead letters match')}; nothing was changed."
    if not report.matched:
        return "No dead letter matches."
    return f"{counted(report.replayed, 'dead letter goes', 'dead letters go')} to the consumer again."


def _as_dict(letter: Letter) -> dict[str, object]:
    return {
        "event_id": letter.event_id or None,
        "place": letter.place,
        "event_type": letter.event_type or None,
        "key": letter.key,
        "bytes": letter.size,
        "attempts": letter.attempts,
        "given_up_at": letter.given_up_at,
        "reason": letter.reason,
        "position": letter.position,
        "headers": letter.headers,
    }
