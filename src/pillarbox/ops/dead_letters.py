"""Dead letters to look at: a page of them, or all about one."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection

from ..ports import DeadLetter
from ..store import inspect
from ..store.dead import DeadFilter
from ..store.inspect import DeadLetterDetails

__all__ = ["DeadFilter", "DeadLetter", "DeadLetterDetails", "Page", "details", "page"]


class Page(NamedTuple):
    """Letters in the order in which they died first; ``next`` is where the following page begins, None at the end."""

    letters: list[DeadLetter]
    next: str | None


def page(connection: Connection, which: DeadFilter, *, limit: int, after: str | None = None) -> Page:
    """``limit`` letters behind the event ``after``, a few more when an event has several destinations.

    Work without its event (``row:<number>`` in place of the event id) is shown when nothing narrows the choice.
    """
    letters = inspect.dead_letters(connection, limit, after, which=None if which == DeadFilter() else which)
    return Page(letters, letters[-1].event_id if len(letters) >= limit else None)


def details(connection: Connection, event_id: str) -> DeadLetterDetails:
    """The message, its dead deliveries and its replays. DeadLetterNotFound (PB-050) when no delivery of it is dead."""
    return inspect.dead_letter(connection, event_id)
