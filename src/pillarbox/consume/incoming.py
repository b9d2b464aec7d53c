"""From a delivered message to the calls that apply it."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from ..errors import CannotDecode
from ..event.message import Message, from_wire
from ..ports import Incoming
from .attempt import Call
from .handlers import is_json
from .registrations import Registrations

MAX_EVENT_ID: Final = 100
"""Characters of an event id that the inbox can hold."""


class ForeignMessage(CannotDecode):
    """No event: without id or type, of another content type, or no JSON where JSON was said."""


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
    """Identify and decode; raises CannotDecode (PB-016) for what no retry can mend, ForeignMessage for no event."""
    try:
        message = from_wire(incoming.headers, incoming.body, source=incoming.source, key=incoming.key)
        _check_id(message)
    except CannotDecode as error:
        raise _foreign(error) from error
    handlers = registrations.of(message.event_type)
    if not handlers:
        return Unhandled(message.event_id, message.event_type)
    try:
        calls = tuple((handler, handler.prepare(message, redelivered=incoming.redelivered)) for handler in handlers)
    except CannotDecode as error:
        if _is_other_format(message):
            raise _foreign(error) from error
        raise
    return Prepared(message.event_id, message.event_type, incoming.source, calls, incoming.key)


def _is_other_format(message: Message) -> bool:
    """No JSON; an event whose JSON does not fit the declared type is ours, and a mistake."""
    if not is_json(message.content_type):
        return True
    try:
        json.loads(message.payload)
    except (ValueError, RecursionError):  # nested too deeply to be read
        return True
    return False


def _foreign(error: CannotDecode) -> ForeignMessage:
    return ForeignMessage(error.message, fix=error.how_to_fix)


def _check_id(message: Message) -> None:
    event_id = message.event_id
    # Spaces at the end: MySQL compares 'a' and 'a ' as equal, so one event would hide the other.
    if not 1 <= len(event_id) <= MAX_EVENT_ID or not event_id.isprintable() or event_id != event_id.strip():
        raise CannotDecode(
            f"A message on {message.destination!r} has the event id {event_id[:120]!r}, which the inbox cannot hold.",
            fix=f"Event ids are 1 to {MAX_EVENT_ID} printable characters, without spaces around them.",
        )
