"""Is there another living relay with this one's name? Pure.

Partitions that are owned under this name and not by this relay are usually those of its predecessor, which died: their
leases run out. What stays leased for much longer is renewed by somebody. Half a lease is added for a renewal of this
relay's own that was under way when it gave a partition up.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from ...ports import Fleet

Finding = Literal["none", "waiting", "lives"]


class Namesake:
    """Looks at the fleet each time that the relay does. Times are seconds of one monotonic clock, passed in."""

    def __init__(self, name: str, lease: float) -> None:
        self._name = name
        self._lease = lease
        self._until: dict[int, float] = {}
        self.partitions: list[int] = []
        """Owned under this name by another."""

    def look(self, fleet: Fleet, mine: Collection[int], now: float) -> Finding:
        """``waiting`` while it may be the predecessor; ``lives`` when it is not, and this relay is the one to end.

        Of two that live the one with fewer partitions ends; of two with as many, that without the first partition.
        """
        theirs = {
            one.partition_no: one.free_in
            for one in fleet.partitions
            if one.owner == self._name and not one.free and one.partition_no not in mine
        }
        self._until = {
            number: self._until.get(number, now + max(free_in, self._lease) + self._lease / 2)
            for number, free_in in theirs.items()
        }
        self.partitions = sorted(theirs)
        if not theirs:
            return "none"
        living = [number for number, until in self._until.items() if now > until]
        is_less = (len(mine), -min(mine, default=0)) < (len(living), -min(living, default=0))
        return "lives" if living and (not mine or is_less) else "waiting"
