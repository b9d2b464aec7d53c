"""How a batch is cut into calls: few of them, without turning the order of any key around. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def runs_of(items: Sequence[T], kind: Callable[[T], str], key: Callable[[T], Hashable | None]) -> list[list[T]]:
    """Groups of one kind each, to be handled one after the other; items of one key keep their order, None has no key.

    >>> items = ["created 1", "paid 1", "created 2", "paid 2", "created 1 again"]
    >>> runs_of(items, kind=lambda item: item.split()[0], key=lambda item: item.split()[1])
    [['created 1', 'created 2'], ['paid 1', 'paid 2'], ['created 1 again']]
    """
    runs: list[list[T]] = []
    places: dict[str, list[int]] = {}  # of a kind, in order
    last: dict[Hashable, int] = {}
    for item in items:
        own, lane = kind(item), key(item)
        after = last.get(lane, 0) if lane is not None else 0
        place = next((place for place in reversed(places.get(own, ())) if place >= after), None)
        if place is None:
            place = len(runs)
            runs.append([])
            places.setdefault(own, []).append(place)
        runs[place].append(item)
        if lane is not None:
            last[lane] = place
    return runs
