"""When a relay counts as alive, and when as ready: one rule for both kinds, for probes and for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Vitals(NamedTuple):
    """What a relay knows of itself at one moment.

    ``moved_ago``: seconds since its loop last went round, None before the first time. ``owned`` and ``entitled``:
    partitions it has, and its fair share of them; None where relays own no partitions (row lease).
    """

    running: bool
    moved_ago: float | None
    database_reachable: bool
    broker_reachable: bool
    owned: int | None = None
    entitled: int | None = None


class Health(NamedTuple):
    """``live``: worth keeping; when False, only a restart helps. ``ready``: it delivers now. ``problems``: why not."""

    live: bool
    ready: bool
    problems: tuple[str, ...] = ()
    details: Mapping[str, object] = {}


def judge(vitals: Vitals, quiet: float, details: Mapping[str, object] | None = None) -> Health:
    """Alive is a loop that moved within ``quiet`` seconds. Ready also needs database, broker and a share of the work.

    A broker or database that is away makes nobody dead: a restart would not bring it back. A relay in excess, entitled
    to nothing, is ready: it stands by, and a rolling update must not wait for it.

    >>> judge(Vitals(True, 0.1, True, False), quiet=60).problems
    ('the broker is out of reach',)
    """
    stalled = vitals.moved_ago is not None and vitals.moved_ago > quiet
    without_share = vitals.owned == 0 and vitals.entitled != 0
    found = {
        "the relay does not run": not vitals.running,
        f"the loop has not moved for {vitals.moved_ago or 0:.0f} s": vitals.running and stalled,
        "the relay has only begun": vitals.running and vitals.moved_ago is None,
        "the database is out of reach": not vitals.database_reachable,
        "the broker is out of reach": not vitals.broker_reachable,
        "it owns no partition yet": without_share,
    }
    problems = tuple(problem for problem, is_so in found.items() if is_so)
    return Health(vitals.running and not stalled, not problems, problems, details or {})
