"""``keep = 0``: what is settled goes at once, event and all, and leaves no receipt."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from ..capabilities import detect
from ..prune.settling import remove_sent
from ..prune.words import Words, words_of
from ..raw import fetch
from .statements import Receipt


class AtOnce:
    """Removes events in the transaction that settles their last delivery."""

    def __init__(self) -> None:
        self._server: tuple[Words, int] | None = None

    def remove(self, connection: Connection, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Remove the events that are sent everywhere; returns the receipts that are still needed.

        The highest id stays, and so does an event with another delivery. An event that is not there any more went with
        a commit of ours that was not heard of.
        """
        if not receipts:
            return []
        words, partitions = self._server = self._server or _look_at(connection)
        gone = remove_sent(connection, words, [(number, dest) for number, dest, *_ in receipts], partitions)
        left = [one for one in receipts if one[0] not in gone]
        if not left:
            return []
        ids = words.among(sorted({one[0] for one in left}))
        there = {row[0] for row in fetch(connection, f"SELECT id FROM outbox_event{words.by_key} WHERE {ids}")}
        return [one for one in left if one[0] in there]


def _look_at(connection: Connection) -> tuple[Words, int]:
    partitions = int(fetch(connection, "SELECT partitions FROM outbox_meta WHERE one = 1")[0][0])
    return words_of(detect(connection)), partitions
