"""Who owns how many partitions: pure, so that all relays that see the same fleet come to the same answer."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ...ports import Fleet


class Share(NamedTuple):
    """What to do about it: partitions to acquire now, and how many to give up."""

    take: list[int]
    give: int


def quota(relays: Collection[str], me: str, partitions: int) -> int:
    """How many of the partitions are mine: as equal as can be, the first relays by name have one more."""
    names = sorted({*relays, me})
    rank, each = names.index(me), divmod(partitions, len(names))
    return each[0] + (rank < each[1])


def share(fleet: Fleet, me: str, mine: Collection[int]) -> Share:
    """Compare what I own with my quota. Relays begin at different places, so that they seldom try for the same."""
    total = len(fleet.partitions)
    wanted = quota(fleet.relays, me, total) - len(mine)
    if wanted <= 0:
        return Share([], -wanted)
    free = [one.partition_no for one in fleet.partitions if one.free and one.partition_no not in mine]
    names = sorted({*fleet.relays, me})
    start = names.index(me) * total // len(names)
    from_start_on = [no for no in free if no >= start] + [no for no in free if no < start]
    return Share(from_start_on[:wanted], 0)


def next_look(fleet: Fleet, mine: Collection[int], longest: float) -> float:
    """Seconds until the fleet is worth another look: when the first lease of another relay would end unrenewed.

    What is free and not mine to take is looked at again after a second: who it is meant for may not come.
    """
    foreign = [one for one in fleet.partitions if one.partition_no not in mine]
    return min([longest, *(1.0 if one.free else max(one.free_in, 0.0) + 0.05 for one in foreign)])
