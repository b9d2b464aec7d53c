"""Which partitions this member holds, and how far each is finished. No client, no network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[str, int]
"""A topic and a partition number."""


@dataclass(slots=True, eq=False)
class Holding:
    """One partition from its assignment to its revocation. ``unfinished`` are the offsets handed out, in order."""

    place: Place
    unfinished: dict[int, None] = field(default_factory=dict)
    next_offset: int = -1

    @property
    def position(self) -> int:
        """The offset to commit: everything below it is finished."""
        return next(iter(self.unfinished), self.next_offset)


class Position(NamedTuple):
    """Where a message stands, and in which holding of its partition it was handed out."""

    holding: Holding
    offset: int


class Partitions:
    """The partitions of one group member. A partition that is revoked and assigned again is another holding."""

    def __init__(self) -> None:
        self._held: dict[Place, Holding] = {}

    def assigned(self, places: Iterable[Place]) -> None:
        """The group gave these to this member."""
        for place in places:
            self._held[place] = Holding(place)

    def revoked(self, places: Iterable[Place]) -> int:
        """The group took these away; returns how many messages were handed out and not finished."""
        lost = [self._held.pop(place, None) for place in places]
        return sum(len(holding.unfinished) for holding in lost if holding is not None)

    def hand_out(self, place: Place, offset: int) -> Position | None:
        """Note that a message is on its way to the handlers; None when its partition is not held any more."""
        holding = self._held.get(place)
        if holding is None:
            return None
        holding.unfinished[offset] = None
        holding.next_offset = offset + 1
        return Position(holding, offset)

    def holds(self, position: Position) -> bool:
        """True while the message's partition has not been revoked since it was handed out."""
        return (
            self._held.get(position.holding.place) is position.holding
            and position.offset in position.holding.unfinished
        )

    def finish(self, positions: Iterable[Position]) -> dict[Place, int]:
        """These are done, in any order. Returns the offsets to commit for the partitions that are still held.

        Only what is finished without a gap counts: an unfinished message holds its partition's offset back.
        """
        touched: dict[Place, Holding] = {}
        for position in positions:
            position.holding.unfinished.pop(position.offset, None)
            if self._held.get(position.holding.place) is position.holding:
                touched[position.holding.place] = position.holding
        return {place: holding.position for place, holding in touched.items()}

    @property
    def held(self) -> list[Place]:
        """The partitions held now."""
        return list(self._held)
