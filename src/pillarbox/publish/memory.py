"""The publisher's twin in memory: for tests of relays and of users' code, without a broker."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from ..event.message import Message
from ..ports import Confirmed, Outcome, PublisherCapabilities, Rejected, Unavailable, Unknown, Withheld
from .streams import Gate

Answer = Callable[[Message], Outcome | None]
"""Says what happens to a message; None: it is confirmed."""


class MemoryPublisher:
    """Keeps what it is given, in order, in ``arrived``. Safe between threads.

    ``answer`` decides each message's outcome; what it answers with Unknown has arrived all the same, as on a broker
    whose answer was lost. While ``down`` is True every message is Unavailable. ``calls`` counts the
    calls of both kinds of publish.

    >>> publisher = MemoryPublisher()
    >>> publisher.publish([])
    []
    """

    capabilities = PublisherCapabilities(scheme="memory", pipelined_order=True, positions=True, headers=True)

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.arrived: list[Message] = []
        self.down = False
        self.calls = 0
        self._offsets: Counter[str] = Counter()
        self._lock = threading.Lock()

    @classmethod
    def from_url(cls, url: str, *, deadline: float) -> MemoryPublisher:
        """``memory:`` has nothing to configure; what arrives is gone with the process."""
        return cls()

    def open(self) -> None:
        """Nothing to connect."""

    def close(self) -> None:
        """Nothing to disconnect; ``arrived`` stays readable."""

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """One outcome per message, in order."""
        with self._lock:
            self.calls += 1
            return [self._one(message) for message in messages]

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """The same; behind the first one of a stream that is not confirmed, nothing arrives and nobody is asked."""
        gate = Gate()
        with self._lock:
            self.calls += 1
            return [gate.stops(message) or self._closing(gate, message) for message in messages]

    def _closing(self, gate: Gate, message: Message) -> Outcome:
        outcome = self._one(message)
        if not isinstance(outcome, Confirmed):
            gate.close(message)
        return outcome

    def _one(self, message: Message) -> Outcome:
        if self.down:
            return Unavailable("the memory broker is down")
        if not message.destination:
            return Rejected("the destination's name is empty", permanent=True)
        outcome = self.answer(message) if self.answer else None
        if isinstance(outcome, (Rejected, Unavailable, Withheld)):
            return outcome
        self.arrived.append(message)
        offset = self._offsets[message.destination]
        self._offsets[message.destination] += 1
        return outcome if isinstance(outcome, (Unknown, Confirmed)) else Confirmed(0, offset)
