"""The event as a user writes it, and the checks that turn it into a message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar
from uuid import UUID

from ..errors import AggregateIdMissing, InvalidEvent, PayloadTooLarge
from .codec import JSON, check_raw, encode
from .destination import Destination
from .limits import DEFAULT_MAX_PAYLOAD_BYTES, MAX_HEADERS_BYTES, check_name
from .message import RESERVED_HEADERS, Message
from .types import EventType, check_version, declared_type

P = TypeVar("P")
AggregateId = str | int | UUID


@dataclass(frozen=True, slots=True)
class Event(Generic[P]):
    """Something that happened, on its way into the outbox.

    ``payload`` is an instance of an ``@event_type`` class, or plain JSON data or bytes with ``type=`` given.
    ``aggregate`` is ``(type, id)`` of the thing it happened to. ``key`` orders events (default: the aggregate id;
    without both the event is unordered). ``headers`` are strings that travel along. ``occurred_at`` must carry a zone.

    >>> Event({"total": "19.90"}, type="order.created", aggregate=("order", 7)).key is None
    True
    """

    payload: P
    aggregate: tuple[str, AggregateId] | None = None
    key: str | None = None
    headers: Mapping[str, str] | None = None
    occurred_at: datetime | None = None
    id: UUID | None = None
    type: str | None = None
    version: int | None = None
    content_type: str | None = None


def type_of(event: Event[object]) -> EventType:
    """The event's type name and version: given on the event, else declared by the payload's class."""
    if event.type is not None:
        return EventType(
            check_name("event type", event.type), check_version(1 if event.version is None else event.version)
        )
    declared = declared_type(type(event.payload))
    return declared if event.version is None else EventType(declared.name, check_version(event.version))


def to_message(
    event: Event[object],
    destination: Destination,
    *,
    event_id: UUID,
    occurred_at: datetime,
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES,
) -> Message:
    """Check and encode ``event``; ``event_id`` and ``occurred_at`` are used where the event has none.

    Raises InvalidEvent, AggregateIdMissing, NotAnEventType, NotSerialisable or PayloadTooLarge; touches nothing.
    """
    if not isinstance(event, Event):
        raise InvalidEvent(
            f"add() takes an Event, got {type(event).__name__}.",
            fix="Wrap it: Event(payload, aggregate=(…)).",
        )
    name, version = type_of(event)
    aggregate_type, aggregate_id = _aggregate(event, name)
    body = event.payload
    if isinstance(body, (bytes, bytearray, memoryview)):
        payload = bytes(body)
        content_type = check_raw(payload, event.content_type, event_type=name)
    else:
        payload = encode(body, event_type=name)
        content_type = event.content_type or JSON
    check_name("content type", content_type)
    if len(payload) > max_payload_bytes:
        raise PayloadTooLarge(
            f"The payload of {name!r} has {len(payload):,} bytes, the limit is {max_payload_bytes:,}."
        )
    return Message(
        str(_id(event, event_id)),
        name,
        version,
        aggregate_type,
        aggregate_id,
        aggregate_id if event.key is None else check_name("key", event.key),
        utc_moment("occurred_at", occurred_at if event.occurred_at is None else event.occurred_at),
        _headers(event.headers),
        content_type,
        payload,
        destination.name,
        destination.routing_key,
    )


def _aggregate(event: Event[object], name: str) -> tuple[str | None, str | None]:
    given = event.aggregate
    if given is None:
        return None, None
    if not isinstance(given, tuple) or len(given) != 2:
        raise InvalidEvent(
            f"The aggregate of {name!r} must be (type, id), got {given!r}.",
            fix="Pass e.g. ('order', order.id).",
        )
    kind, number = given
    if number is None:
        raise AggregateIdMissing(f"The aggregate id of {name!r} is None: ({kind!r}, None).")
    if isinstance(number, bool) or not isinstance(number, (str, int, UUID)):
        raise InvalidEvent(
            f"The aggregate id of {name!r} must be str, int or UUID, got {type(number).__name__}.",
            fix="Convert it to text first.",
        )
    try:
        text = str(number)
    except ValueError as error:  # CPython refuses to print ints of more than 4,300 digits
        raise InvalidEvent(
            f"The aggregate id of {name!r} is a number too long to print.", fix="Use a shorter id."
        ) from error
    return check_name("aggregate type", kind), check_name("aggregate id", text)


def _id(event: Event[object], made: UUID) -> UUID:
    if event.id is None:
        return made
    if not isinstance(event.id, UUID):
        raise InvalidEvent(
            f"The event id must be a UUID, got {type(event.id).__name__}.",
            fix="Pass uuid.UUID(text), or leave it out.",
        )
    return event.id


def utc_moment(name: str, moment: object) -> datetime:
    """The argument ``name`` in UTC. InvalidEvent (PB-010) when it is no datetime with a zone."""
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidEvent(
            f"{name} must be a datetime with a zone, got {moment!r}.",
            fix="Use datetime.now(timezone.utc).",
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidEvent(f"{name} is no moment in UTC: {moment!r}.", fix="Use datetime.now(timezone.utc).") from error


def _headers(headers: Mapping[str, str] | None) -> str | None:
    if not headers:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidEvent(f"headers must be a mapping of strings, got {type(headers).__name__}.", fix="Pass a dict.")
    for name, value in headers.items():
        check_name("header name", name)
        if name in RESERVED_HEADERS:
            raise InvalidEvent(
                f"The header {name!r} is written by Pillarbox itself.", fix="Choose another header name."
            )
        check_name(f"header {name!r}", value, empty=True, most=MAX_HEADERS_BYTES)
    text = json.dumps(dict(headers), ensure_ascii=False, separators=(",", ":"))
    if len(text.encode()) > MAX_HEADERS_BYTES:
        raise InvalidEvent(
            f"The headers have {len(text.encode()):,} bytes, the limit is {MAX_HEADERS_BYTES:,}.",
            fix="Send less in headers.",
        )
    return text
