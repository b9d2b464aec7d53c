"""What happens in a cell, and in which order, drawn from the seed: the same seed gives the same alarms and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final
from uuid import UUID

from .alarms import Alarm
from .model import CellKey

DEVICES: Final = 5
LONGEST_PAUSE: Final = 0.02
"""Seconds that a process waits at its point before it is struck, at most."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """One event of a cell, and how long its process waits at the point before the fault strikes."""

    alarm: Alarm
    pause: float


def schedule(seed: int, key: CellKey, rounds: int) -> tuple[Stroke, ...]:
    """The events of one cell in their order. Cells do not influence one another.

    >>> key = CellKey("W1", "S1")
    >>> schedule(7, key, 3) == schedule(7, key, 3) != schedule(8, key, 3)
    True
    """
    chance = Random(f"{seed} {key}")
    return tuple(
        Stroke(
            Alarm(
                event_id=str(UUID(int=chance.getrandbits(128), version=4)),
                device=f"sensor-{chance.randint(1, DEVICES)}",
                celsius=chance.randint(60, 120),
            ),
            round(chance.uniform(0, LONGEST_PAUSE), 4),
        )
        for _ in range(rounds)
    )


def waves(seed: int, key: CellKey, strokes: Sequence[Stroke], most: int) -> tuple[tuple[Stroke, ...], ...]:
    """The same events in groups that are struck together, of at most ``most`` and of sizes that the seed decides."""
    chance = Random(f"{seed} {key} waves")
    found: list[tuple[Stroke, ...]] = []
    at = 0
    while at < len(strokes):
        size = chance.randint(max(1, most // 2), most)
        found.append(tuple(strokes[at : at + size]))
        at += size
    return tuple(found)
