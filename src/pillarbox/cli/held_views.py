"""Holds as a table for people and as plain values for JSON."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table

from ..ops.held import HeldPage
from .output import moment


def held_as_dict(page: HeldPage) -> dict[str, object]:
    """For JSON."""
    return {"held": [one._asdict() for one in page.streams], "total": page.total}


def held_table(page: HeldPage) -> Group:
    """One line a hold."""
    if not page.streams:
        return Group("Nothing is held.")
    table = Table(box=None)
    for name in ("partition", "key", "destination", "mode", "behind event", "waiting", "since", "due", "reason"):
        table.add_column(name, overflow="fold")
    for one in page.streams:
        table.add_row(
            str(one.partition_no),
            "(all)" if one.key is None else one.key,
            one.destination,
            one.mode,
            one.head_event_id or "-",
            f"{one.waiting:,}",
            moment(one.since),
            "-" if one.due_at is None else moment(one.due_at),
            "let go: the relay of this partition sends what waits" if one.mode == "drain" else one.reason,
        )
    more = page.total - len(page.streams)
    return Group(table, *([f" and {more:,} more"] if more > 0 else []))
