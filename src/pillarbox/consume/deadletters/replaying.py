"""Choosing dead letters and sending them to their consumer again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ... import faultpoints
from .letters import DeadLetterBox, Letter, Order

_log = logging.getLogger("pillarbox.consume.deadletters")


class Choice(NamedTuple):
    """Which letters: those of these event ids (all without any) whose reason contains ``reason``, ``limit`` at most.

    A letter without an event id is named by its place.
    """

    ids: frozenset[str] = frozenset()
    event_type: str | None = None
    reason: str | None = None
    limit: int | None = None


class Replayed(NamedTuple):
    """How many matched, how many were sent, and which ids of the choice are not among the dead letters."""

    matched: int
    replayed: int
    missing: list[str]


def chosen(box: DeadLetterBox, choice: Choice) -> Iterator[Letter]:
    """The letters of the choice, the oldest first."""
    left = choice.limit
    for letter in box.letters():
        if left is not None and left <= 0:
            return
        if _matches(letter, choice):
            left = None if left is None else left - 1
            yield letter


def replay(
    box: DeadLetterBox,
    choice: Choice,
    order: Order,
    *,
    dry_run: bool = False,
    told: Callable[[Letter], object] = lambda letter: None,
) -> Replayed:
    """Send the letters of the choice again, one after the other, each noted in the log; ``told`` hears of each.

    Each is sent first, confirmed, and removed afterwards: a crash between the two leaves both, so that its consumer may
    get it twice, and its inbox knows it. An error ends it; what was not sent is still a dead letter.
    """
    seen: set[str] = set()
    matched = replayed = 0
    for letter in chosen(box, choice):
        matched += 1
        seen |= {letter.event_id, letter.place}
        if not dry_run:
            box.send(letter, order)
            faultpoints.reach("dead-letters.sent")
            box.remove(letter, order)
            replayed += 1
            _log.info(
                "dead letter %s (event %s, %s) goes to its consumer again, by %s: %s; it was given up for: %s",
                letter.place,
                letter.event_id or "without id",
                letter.event_type or "no type",
                order.by,
                order.reason,
                letter.reason,
            )
        told(letter)
    return Replayed(matched, replayed, sorted(choice.ids - seen))


def _matches(letter: Letter, choice: Choice) -> bool:
    named = not choice.ids or letter.event_id in choice.ids or letter.place in choice.ids
    typed = choice.event_type is None or letter.event_type == choice.event_type
    return named and typed and (choice.reason is None or choice.reason in letter.reason)
