"""One call of publish: the outcome of each message, filled in by the connection's thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from ...event.message import Message
from ...ports import Confirmed, Outcome, Unknown
from ..streams import Name, withheld


class Batch:
    """Written by one thread, awaited by another. The first outcome of a message stands.

    ``ordered``: a message is sent only when the one before it in its stream is confirmed; until then it is not
    ``ready``. A message that fails takes all behind it in its stream along: they are withheld.
    """

    __slots__ = ("_done", "_left", "_next", "_outcomes", "answers", "messages", "ordered")

    def __init__(self, messages: Sequence[Message], *, ordered: bool = False) -> None:
        self.messages = messages
        self.ordered = ordered
        self.answers = 0  # confirms and refusals that the broker gave so far
        self._outcomes: list[Outcome | None] = [None] * len(messages)
        self._left = len(messages)
        self._next: dict[int, int] = {}  # the message behind one in its stream, where order is asked for
        self._done = threading.Event()

    def ready(self) -> dict[str, list[int]]:
        """The indexes of the messages that may go at once, for each exchange, in order."""
        found: dict[str, list[int]] = {}
        last: dict[Name, int] = {}
        for index, message in enumerate(self.messages):
            if self.ordered and message.key is not None:
                stream = (message.destination, message.key)
                before = last.get(stream)
                last[stream] = index
                if before is not None:
                    self._next[before] = index
                    continue
            found.setdefault(message.destination, []).append(index)
        return found

    def confirm(self, indexes: Iterable[int], outcome: Confirmed) -> list[int]:
        """These are confirmed, if they have no other outcome yet; returns the messages that may go now."""
        outcomes, behind = self._outcomes, self._next
        freed = []
        for index in indexes:
            if outcomes[index] is None:
                outcomes[index] = outcome
                self._left -= 1
                if behind and index in behind:
                    freed.append(behind.pop(index))
        if self._left == 0:
            self._done.set()
        return freed

    def fail(self, indexes: Iterable[int], outcome: Outcome) -> None:
        """Give these messages this outcome, and withhold what stands behind them; those that have one keep theirs."""
        for index in indexes:
            if self._outcomes[index] is None:
                self._outcomes[index] = outcome
                self._left -= 1
                self._withhold_behind(index)
        if self._left == 0:
            self._done.set()

    def fail_rest(self, outcome: Outcome) -> None:
        """Give every message that has no outcome yet this one, or withhold it."""
        self.fail(range(len(self.messages)), outcome)

    def send_no_more(self, outcome: Outcome) -> None:
        """What was to be sent after a confirm gets this outcome; what is under way is still waited for."""
        for index in self._next.values():
            self._outcomes[index] = outcome
            self._left -= 1
        self._next.clear()

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

    def _withhold_behind(self, index: int) -> None:
        if index not in self._next:
            return
        waits = withheld(self.messages[index])
        while (following := self._next.pop(index, None)) is not None:
            self._outcomes[following] = waits
            self._left -= 1
            index = following
