"""What is to be sent, in which order, over all calls that are under way. Everything here runs on one thread.

JetStream refuses single messages and takes the next ones, so where order is asked for, a message goes only when the one
before it in its stream (destination and key) is acknowledged; the streams are pipelined among each other. The next call
may begin while the one before waits: its messages stand behind those of the same stream.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ...event.message import Message
from ...ports import Confirmed, Outcome, Unknown
from ..streams import NO_TIME, Gate, Name, stream_of, withheld


class Flight:
    """One call: its messages, and their outcomes as they come. Awaited by another thread."""

    __slots__ = ("answers", "done", "gate", "left", "messages", "ordered", "outcomes", "under_way")

    def __init__(self, messages: Sequence[Message], *, ordered: bool = False) -> None:
        self.messages = messages
        self.ordered = ordered
        self.outcomes: list[Outcome | None] = [None] * len(messages)
        self.left = len(messages)
        self.under_way: set[int] = set()
        self.answers = 0
        self.gate = Gate()
        self.done = threading.Event()

    def results(self) -> list[Outcome]:
        """One per message. What nobody answered for may have been sent."""
        nobody = Unknown("the connection's thread gave no answer in time", destination_healthy=False)
        return [nobody if outcome is None else outcome for outcome in self.outcomes]

    def unanswered(self) -> list[int]:
        """The messages without an outcome."""
        return [index for index, outcome in enumerate(self.outcomes) if outcome is None]


class Place(NamedTuple):
    """A message of a flight."""

    flight: Flight
    at: int

    @property
    def message(self) -> Message:
        """The message itself."""
        return self.flight.messages[self.at]


class Line:
    """Flights end in the order in which they began. ``ready`` holds what may be sent at once."""

    def __init__(self) -> None:
        self.flights: deque[Flight] = deque()
        self.ready: deque[Place] = deque()
        self._behind: dict[Name, deque[Place]] = {}  # a stream is here while one of its messages is on its way

    def begin(self, flight: Flight) -> None:
        """Take the messages of a flight into the line."""
        self.flights.append(flight)
        for index, message in enumerate(flight.messages):
            place = Place(flight, index)
            name = _stream(place)
            if name is None:
                self.ready.append(place)
            elif (stopped := self._stopped(message)) is not None:
                self._settle(place, stopped)
                flight.gate.close(message)
            elif name in self._behind:
                self._behind[name].append(place)
            else:
                self._behind[name] = deque()
                self.ready.append(place)
        self._end()

    def next_one(self) -> Place | None:
        """The next message to send, which is under way from now on."""
        while self.ready:
            place = self.ready.popleft()
            if place.flight.outcomes[place.at] is None:
                place.flight.under_way.add(place.at)
                return place
        return None

    def confirm(self, place: Place, outcome: Confirmed) -> None:
        """It is in the broker; the next one of its stream may go."""
        if not self._settle(place, outcome):
            return
        name = _stream(place)
        if name is not None and name in self._behind:
            if self._behind[name]:
                self.ready.append(self._behind[name].popleft())
            else:
                del self._behind[name]
        self._end()

    def fail(self, place: Place, outcome: Outcome) -> None:
        """It is not in the broker, for all that is known; what stands behind it in its stream is withheld."""
        if not self._settle(place, outcome):
            return
        name = _stream(place)
        if name is not None:
            place.flight.gate.close(place.message)
            self._withhold(self._behind.pop(name, deque()), place.message, withheld(place.message))
        self._end()

    def fail_rest(self, flight: Flight, outcome: Outcome) -> None:
        """Give every message of the flight that has none this outcome, or withhold it behind one that gets it."""
        for index in flight.unanswered():
            if flight.outcomes[index] is None:  # it may stand behind one that was just failed
                self._drop(Place(flight, index), outcome)
        self._end()

    def send_no_more(self, flight: Flight) -> None:
        """What was not sent goes with the next call; what is under way is still waited for."""
        for index in flight.unanswered():
            if index not in flight.under_way and flight.outcomes[index] is None:
                self._drop(Place(flight, index), NO_TIME)
        self._end()

    def _drop(self, place: Place, outcome: Outcome) -> None:
        """It has not been sent, and will not be. What is under way before it in its stream stays."""
        name = _stream(place)
        behind = self._behind.get(name) if name is not None else None
        if name is None or behind is None or place not in behind:
            self.fail(place, outcome)
            return
        tail: deque[Place] = deque()
        while behind and (last := behind.pop()):
            tail.appendleft(last)
            if last == place:
                break
        self._withhold(tail, place.message, outcome)

    def _withhold(self, places: deque[Place], because_of: Message, outcome: Outcome) -> None:
        for place in places:
            self._settle(place, outcome)
            place.flight.gate.close(because_of)

    def _stopped(self, message: Message) -> Outcome | None:
        """Flights that have not ended hold back what they left unconfirmed: their caller does not know of it yet."""
        return next((stopped for one in self.flights if (stopped := one.gate.stops(message)) is not None), None)

    def _settle(self, place: Place, outcome: Outcome) -> bool:
        flight, index = place
        if flight.outcomes[index] is not None:
            return False
        flight.outcomes[index] = outcome
        flight.under_way.discard(index)
        flight.left -= 1
        return True

    def _end(self) -> None:
        while self.flights and self.flights[0].left == 0:
            self.flights.popleft().done.set()


def _stream(place: Place) -> Name | None:
    return stream_of(place.message) if place.flight.ordered else None
