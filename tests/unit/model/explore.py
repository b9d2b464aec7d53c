"""Breadth first over every interleaving, each state once."""

from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.unit.model.state import State

Step = tuple[str, State]


class Wrong(Exception):
    """A rule was broken by a step; the message says which."""


class Found(NamedTuple):
    """What an exploration came to. ``wrong`` is empty when nothing is; ``path`` then leads there."""

    states: int
    steps: int
    ends: int
    wrong: str
    path: list[str]


def explore(
    start: State,
    steps: Callable[[State], Iterable[Step]],
    check: Callable[[State], str],
    is_good_end: Callable[[State], bool],
    limit: int = 2_000_000,
) -> Found:
    """Follow all steps from ``start``. ``check`` names what is wrong with a state, or is empty.

    At last, from every state a good end must be in reach: a state that no step leaves, and ``is_good_end``.
    """
    numbers = {start: 0}
    order = [start]
    came: list[tuple[int, str]] = [(-1, "")]
    back: list[array[int]] = [array("i")]
    taken, ends, good = 0, 0, []
    at = 0
    while at < len(order):
        state, any_step = order[at], False
        try:
            for label, following in steps(state):
                any_step = True
                taken += 1
                number = numbers.get(following)
                if number is None:
                    number = numbers[following] = len(order)
                    order.append(following)
                    came.append((at, label))
                    back.append(array("i"))
                    if wrong := check(following):
                        return Found(len(order), taken, ends, wrong, _path(came, number))
                back[number].append(at)
        except Wrong as error:
            return Found(len(order), taken, ends, str(error), [*_path(came, at), str(error)])
        if not any_step:
            ends += 1
            if is_good_end(state):
                good.append(at)
            else:
                return Found(len(order), taken, ends, f"a bad end: {state}", _path(came, at))
        if len(order) > limit:
            return Found(len(order), taken, ends, f"more than {limit} states", [])
        at += 1
    stuck = _cannot_reach(good, back)
    if stuck is not None:
        return Found(len(order), taken, ends, f"no end in reach: {order[stuck]}", _path(came, stuck))
    return Found(len(order), taken, ends, "", [])


def _path(came: list[tuple[int, str]], number: int) -> list[str]:
    labels = []
    while number > 0:
        number, label = came[number]
        labels.append(label)
    return labels[::-1]


def _cannot_reach(good: list[int], back: list["array[int]"]) -> int | None:
    """A state from which no good end can be reached, if there is one."""
    reaches = bytearray(len(back))
    todo = list(good)
    for number in good:
        reaches[number] = 1
    while todo:
        for before in back[todo.pop()]:
            if not reaches[before]:
                reaches[before] = 1
                todo.append(before)
    first = reaches.find(0)
    return None if first < 0 else first
