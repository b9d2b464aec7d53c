"""Why a relay that was to run until all is sent ended with something left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..output import counted


def why(report: Mapping[str, Any]) -> str:
    """A sentence for people, from the counters of ``pillarbox relay --until-empty``.

    >>> why({"left": 1, "dead": 2})
    'Not empty: 1 event is left, see `pillarbox status`; 2 events died, see `pillarbox dead list`.'
    """
    parts = []
    if left := report.get("left", 0):
        parts.append(f"{counted(left, 'event is', 'events are')} left, see `pillarbox status`")
    if dead := report.get("dead", 0):
        parts.append(f"{counted(dead, 'event')} died, see `pillarbox dead list`")
    return f"Not empty: {'; '.join(parts) or 'a relay did not end well, see its log'}."
