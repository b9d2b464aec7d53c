"""Where results go: tables and sentences for people, one JSON object a line for programs, both on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from .streams import only_ascii


def say(text: str) -> None:
    """One plain line."""
    print(text)


def as_json(value: object, *, flush: bool = False) -> None:
    """One JSON object on one line; times in ISO 8601 with their zone."""
    print(json.dumps(value, ensure_ascii=only_ascii(sys.stdout), default=_plain), flush=flush)


def show(value: object, *, json_wanted: bool, people: Callable[[], Any]) -> None:
    """``value`` as JSON when that is wanted, else what ``people`` makes (a sentence, or something Rich can print)."""
    if json_wanted:
        as_json(value)
        return
    from rich.console import Console

    # Rich wraps to the terminal; a pipe gets wide lines, so that grep and cut see whole rows.
    console = Console(width=None if sys.stdout.isatty() else 250, markup=False, highlight=False, emoji=False)
    console.print(people())


def counted(number: int, one: str, many: str = "") -> str:
    """``1 event``, ``2,000 events``; ``many`` where the plural is no ``s`` more."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def moment(value: datetime) -> str:
    """A time for people: to the second, with its zone."""
    return value.isoformat(sep=" ", timespec="seconds")


def age(seconds: float | None) -> str:
    """A duration for people: ``-``, ``0.4 s``, ``12 min``, ``3.5 h``, ``9.1 d``."""
    if seconds is None:
        return "-"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:.1f} d"


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)
