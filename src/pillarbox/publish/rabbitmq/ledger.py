"""Which message each delivery tag of a confirm channel belongs to."""

from __future__ import annotations


class Ledger:
    """Tags count from 1 in the order of sending, per channel. Confirms may come singly, in bulk, and out of order.

    >>> ledger = Ledger()
    >>> [ledger.sent(index) for index in (7, 8, 9)]
    [1, 2, 3]
    >>> ledger.answered(2, multiple=True), ledger.answered(2, multiple=False), ledger.unanswered()
    ([7, 8], [], [9])
    """

    __slots__ = ("_first", "_indexes", "_low", "in_flight")

    def __init__(self) -> None:
        self.in_flight = 0
        self._first = 1  # the tag of _indexes[0]
        self._indexes: list[int] = []  # -1 once answered
        self._low = 0  # everything before it is answered

    def sent(self, index: int) -> int:
        """The message was written to the channel; returns its tag."""
        self._indexes.append(index)
        self.in_flight += 1
        return self._first + len(self._indexes) - 1

    def answered(self, tag: int, *, multiple: bool) -> list[int]:
        """The messages that this confirm answers: up to ``tag``, or just that one. Known ones are not repeated."""
        indexes = self._indexes
        last = tag - self._first if tag or not multiple else len(indexes) - 1  # AMQP: tag 0 with multiple means all
        if not 0 <= last < len(indexes):
            return []
        places = range(self._low, last + 1) if multiple else range(last, last + 1)
        found = [indexes[place] for place in places if indexes[place] >= 0]
        for place in places:
            indexes[place] = -1
        self.in_flight -= len(found)
        self._advance(last + 1 if multiple else self._low)
        return found

    def unanswered(self) -> list[int]:
        """The messages still in flight, in the order of sending."""
        return [index for index in self._indexes[self._low :] if index >= 0]

    def _advance(self, low: int) -> None:
        indexes = self._indexes
        self._low = max(self._low, low)
        while self._low < len(indexes) and indexes[self._low] < 0:
            self._low += 1
        if self._low == len(indexes):  # nothing in flight: forget the past, so that it never grows
            self._first += self._low
            indexes.clear()
            self._low = 0
