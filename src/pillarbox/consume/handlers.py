"""Handlers by event type: what is registered, and how a message becomes a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import BadHandler, CannotDecode, NotAnEventType, NotSerialisable
from ..event.codec import cannot_be_decoded, decode, decode_plain, encode
from ..event.limits import check_name
from ..event.message import Message
from ..event.types import EventType, declared_type
from ..event.upcasting import lift, needs_lift
from .received import Received, receive
from .signature import Kind, Signature, read_signature


class Handler(NamedTuple):
    """One registered function. ``into`` is what the payload is decoded into: a type, or Any for plain JSON.

    ``many``: it takes a list of events.
    """

    function: Callable[..., object]
    event_type: str
    into: Any
    signature: Signature
    many: bool = False

    @property
    def name(self) -> str:
        """What logs call it."""
        return str(getattr(self.function, "__qualname__", None) or repr(self.function))

    @property
    def declared(self) -> EventType | None:
        """What its payload class says of itself; None where it takes bytes, plain JSON or a class without a type."""
        return _declared(self.into)

    def prepare(self, message: Message, *, redelivered: bool) -> Received[Any]:
        """Decode the payload; raises CannotDecode (PB-016)."""
        return receive(message, decode_payload(message, self.into), redelivered=redelivered)

    def call(self, events: Sequence[Received[Any]], session: object, connection: Callable[[], object]) -> object:
        """Run the function inside the open transaction: once with all events if it takes many, else with the one."""
        filled: dict[str, object] = {"session": session}
        if self.many:
            filled["events"] = list(events)
        else:
            (filled["event"],) = events
        if any(fill == "connection" for _, fill in self.signature.fills):
            filled["connection"] = connection()
        positional = [filled[fill] for name, fill in self.signature.fills if name in self.signature.positional]
        named = {name: filled[fill] for name, fill in self.signature.fills if name not in self.signature.positional}
        return self.function(*positional, **named)


def make_handler(
    what: type | str, function: Callable[..., object], local_names: Mapping[str, Any], kind: Kind = Kind()
) -> Handler:
    """Check ``function`` and tie it to the event type ``what`` (an ``@event_type`` class or a name).

    Raises BadHandler (PB-040), also where the annotated payload class belongs to another event type.
    """
    if not callable(function):
        raise BadHandler(
            f"on({what!r}) decorates a function, not a {type(function).__name__}.", fix="Use it above def."
        )
    event_type = event_type_name(what)
    signature = read_signature(function, local_names, kind)
    into = signature.payload
    if into is None:
        into = Any if isinstance(what, str) else what
    handler = Handler(function, event_type, into, signature, kind.many)
    if handler.declared is not None and handler.declared.name != event_type:
        raise BadHandler(
            f"The handler {handler.name!r} is registered for {event_type!r} but takes a payload of "
            f"{handler.declared.name!r}.",
            fix="Register it for the type that it takes.",
        )
    if into is not bytes and (reason := cannot_be_decoded(into)):
        raise BadHandler(
            f"The handler {handler.name!r} takes a payload that no body can be decoded into: {reason}.",
            fix="Change that type (a union needs tagged members, see msgspec), or take Received[Any] and decode there.",
        )
    return handler


def event_type_name(what: type | str) -> str:
    """The event type's name on the wire; NotAnEventType (PB-015) for a class that has none."""
    return check_name("event type", what) if isinstance(what, str) else declared_type(what).name


def _declared(into: object) -> EventType | None:
    try:
        return declared_type(into) if isinstance(into, type) else None
    except NotAnEventType:
        return None


def decode_payload(message: Message, into: Any) -> Any:
    """Decode into a type, bytes (untouched) or Any (plain JSON types); raises CannotDecode (PB-016)."""
    if into is bytes:
        return message.payload
    if is_json(message.content_type):
        return decode(_lifted(message, into), into, event_type=message.event_type)
    if into is Any or into is object:
        return message.payload
    raise CannotDecode(
        f"Event {message.event_id} of type {message.event_type!r} is {message.content_type!r}, which cannot be decoded "
        f"into {getattr(into, '__name__', into)!s}.",
        fix="Annotate the handler Received[bytes] and decode the body there.",
    )


def _lifted(message: Message, into: Any) -> bytes:
    """The body as the class's version has it; raises CannotDecode (PB-016), NewerSchemaVersion (PB-017)."""
    if not needs_lift(into, message.event_type, message.schema_version):
        return message.payload
    plain = decode_plain(message.payload, event_type=message.event_type)
    try:
        return encode(lift(into, plain, message.schema_version), event_type=message.event_type)
    except NotSerialisable as error:
        raise CannotDecode(
            f"What the upcasters make of version {message.schema_version} is no JSON: {error.message}",
            fix="Correct the upcaster, and replay the dead letter.",
        ) from error


def is_json(content_type: str) -> bool:
    """True for application/json and the +json family, whatever parameters follow."""
    essence = content_type.partition(";")[0].strip().lower()
    return essence == "application/json" or essence.endswith("+json")


__all__ = ["Handler", "decode_payload", "event_type_name", "is_json", "make_handler"]
