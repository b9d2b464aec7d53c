"""One call of publish: the outcome of each message, filled in by the connection's thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from ...event.message import Message
from ...ports import Outcome, Unknown


class Batch:
    """Written by one thread, awaited by another. The first outcome of a message stands."""

    __slots__ = ("_done", "_left", "_outcomes", "answers", "messages")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.answers = 0  # confirms and refusals that the broker gave so far
        self._outcomes: list[Outcome | None] = [None] * len(messages)
        self._left = len(messages)
        self._done = threading.Event()

    def by_exchange(self) -> dict[str, list[int]]:
        """The indexes of the messages for each exchange, in order."""
        found: dict[str, list[int]] = {}
        for index, message in enumerate(self.messages):
            found.setdefault(message.destination, []).append(index)
        return found

    def settle(self, indexes: Iterable[int], outcome: Outcome) -> None:
        """Give these messages this outcome; those that have one keep theirs."""
        outcomes = self._outcomes
        for index in indexes:
            if outcomes[index] is None:
                outcomes[index] = outcome
                self._left -= 1
        if self._left == 0:
            self._done.set()

    def settle_rest(self, outcome: Outcome) -> None:
        """Give every message that has no outcome yet this one."""
        self.settle(range(len(self.messages)), outcome)

    def has(self, index: int) -> bool:
        """True when the message has its outcome."""
        return self._outcomes[index] is not None

    @property
    def finished(self) -> bool:
        """True when every message has its outcome."""
        return self._left == 0

    def wait(self, seconds: float) -> bool:
        """Wait until every message has its outcome; False when the time is over first."""
        return self._done.wait(seconds)

    def outcomes(self) -> list[Outcome]:
        """One per message. What nobody answered for may have been sent."""
        nobody = Unknown("the connection's thread gave no answer in time", destination_healthy=False)
        return [nobody if outcome is None else outcome for outcome in self._outcomes]
