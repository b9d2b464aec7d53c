"""Crash loops: find the event that kills the relay, without punishing its neighbours.

A claim adds one to ``claims`` and any settlement resets it, so a high number means: whoever claimed this died. Which
event of the batch did it is unknown. From ``SUSPECT_CLAIMS`` on, only a group of the most claimed events is published
and the rest is given back, its claim uncounted. The group shrinks with every crash (256, 64, 16, 4, 1), so that whoever
passes ``MAX_CLAIMS`` was alone at the last crashes: about ten in all, and every neighbour is delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..ports import Delivery

SUSPECT_CLAIMS: Final = 4
MAX_CLAIMS: Final = 10


class Triage(NamedTuple):
    """What to do with a claimed batch."""

    publish: Sequence[Delivery]
    give_back: Sequence[Delivery] = ()
    give_up: Sequence[Delivery] = ()


def triage(claimed: Sequence[Delivery]) -> Triage:
    """Split a batch into what is published now, given back for later, and given up as a crash loop."""
    if all(delivery.claims < SUSPECT_CLAIMS for delivery in claimed):
        return Triage(claimed)
    give_up = [d for d in claimed if d.claims > MAX_CLAIMS]
    rest = [d for d in claimed if d.claims <= MAX_CLAIMS]
    worst = max((d.claims for d in rest), default=0)
    if worst < SUSPECT_CLAIMS:
        return Triage(rest, (), give_up)
    group = [d for d in rest if d.claims == worst][: group_size(worst)]
    chosen = {d.key for d in group}
    return Triage(group, [d for d in rest if d.key not in chosen], give_up)


def group_size(claims: int) -> int:
    """How many events are published together when the most suspect of them was claimed ``claims`` times."""
    return int(4 ** max(0, SUSPECT_CLAIMS + 4 - claims))
