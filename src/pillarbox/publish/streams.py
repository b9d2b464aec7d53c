"""Streams: what keeps its order is the messages of one destination and key."""

from __future__ import annotations

from typing import Final

from ..event.message import Message
from ..ports import Outcome, Withheld

Name = tuple[str, str]
"""Destination and key."""

NO_TIME: Final = Withheld("not sent: all before it was confirmed, but the time for this call was over")
"""Nobody's fault, neither the message's nor the destination's: it goes with the next call."""


def stream_of(message: Message) -> Name | None:
    """Which stream the message belongs to; None without a key: then it is alone in its own."""
    return None if message.key is None else (message.destination, message.key)


def withheld(message: Message) -> Withheld:
    """What the later messages of its stream are, when ``message`` was not confirmed."""
    return Withheld(f"not sent: it waits for event {message.event_id} of its key, which is not confirmed")


class Gate:
    """Streams that are closed, because one of their messages was not confirmed."""

    __slots__ = ("_closed",)

    def __init__(self) -> None:
        self._closed: dict[Name, Withheld] = {}

    def __bool__(self) -> bool:
        return bool(self._closed)

    def stops(self, message: Message) -> Withheld | None:
        """The outcome of a message whose stream is closed; None when it may go."""
        stream = stream_of(message)
        return None if stream is None else self._closed.get(stream)

    def close(self, message: Message) -> None:
        """``message`` was not confirmed; the first one of a stream is the one that is named."""
        stream = stream_of(message)
        if stream is not None and stream not in self._closed:
            self._closed[stream] = withheld(message)

    def pass_through(self, message: Message, outcome: Outcome | None) -> Outcome | None:
        """The outcome of a message in its place: withheld behind a closed gate, else its own, which may close it."""
        stopped = self.stops(message)
        if stopped is None and outcome is not None:
            self.close(message)
        return stopped or outcome
