"""From a delivered message to the calls that apply it."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import CannotDecode
from ..event.message import Message, from_wire
from ..ports import Incoming
from .attempt import Call
from .registrations import Registrations

MAX_EVENT_ID: Final = 100
"""Characters of an event id that the inbox can hold."""


class Prepared(NamedTuple):
    """An event whose payload is decoded for each of its handlers."""

    event_id: str
    event_type: str
    source: str
    calls: tuple[Call, ...]
    key: str | None = None

    @property
    def lane(self) -> tuple[str, str] | None:
        """What it must keep its order with."""
        return None if self.key is None else (self.source, self.key)

    def __str__(self) -> str:
        return f"event {self.event_id} ({self.event_type}) of {self.source!r}"


class Unhandled(NamedTuple):
    """An event of a type that this consumer has no handler for."""

    event_id: str
    event_type: str


def prepare(incoming: Incoming, registrations: Registrations) -> Prepared | Unhandled:
    """Identify and decode; raises CannotDecode (PB-016) for what no retry can mend."""
    message = from_wire(incoming.headers, incoming.body, source=incoming.source, key=incoming.key)
    _check_id(message)
    handlers = registrations.of(message.event_type)
    if not handlers:
        return Unhandled(message.event_id, message.event_type)
    calls = tuple((handler, handler.prepare(message, redelivered=incoming.redelivered)) for handler in handlers)
    return Prepared(message.event_id, message.event_type, incoming.source, calls, incoming.key)


def _check_id(message: Message) -> None:
    event_id = message.event_id
    # Spaces at the end: MySQL compares 'a' and 'a ' as equal, so one event would hide the other.
    if not 1 <= len(event_id) <= MAX_EVENT_ID or not event_id.isprintable() or event_id != event_id.strip():
        raise CannotDecode(
            f"A message on {message.destination!r} has the event id {event_id[:120]!r}, which the inbox cannot hold.",
            fix=f"Event ids are 1 to {MAX_EVENT_ID} printable characters, without spaces around them.",
        )
