"""The message: an event as it is stored and as it travels.

On the wire the body is the payload, byte for byte, and everything else is headers. The header names are those of
Debezium's Outbox Event Router where it has one (``id``, ``eventType``), so that consumers need not know who published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from ..errors import CannotDecode
from .cloudevents import to_plain
from .codec import JSON, as_utc_text

ID: Final = "id"
TYPE: Final = "eventType"
VERSION: Final = "schemaVersion"
AGGREGATE_TYPE: Final = "aggregateType"
AGGREGATE_ID: Final = "aggregateId"
OCCURRED_AT: Final = "occurredAt"
CONTENT_TYPE: Final = "contentType"
KEY: Final = "key"  # only where the broker has no place for a key of its own (RabbitMQ, NATS)

RESERVED_HEADERS: Final = frozenset({ID, TYPE, VERSION, AGGREGATE_TYPE, AGGREGATE_ID, OCCURRED_AT, CONTENT_TYPE, KEY})


class Message(NamedTuple):
    """One event for one destination. ``headers`` is the user's headers as a JSON object, None for none."""

    event_id: str
    event_type: str
    schema_version: int
    aggregate_type: str | None
    aggregate_id: str | None
    key: str | None
    occurred_at: datetime
    headers: str | None
    content_type: str
    payload: bytes
    destination: str
    routing_key: str | None


def to_headers(message: Message) -> list[tuple[str, str]]:
    """The headers a publisher sends; a field that is None has no header."""
    event_id, event_type, version, aggregate_type, aggregate_id, _, occurred_at, own, content_type, _, _, _ = message
    found = [
        (ID, event_id),
        (TYPE, event_type),
        (VERSION, "1" if version == 1 else str(version)),
        (OCCURRED_AT, as_utc_text(occurred_at)),
        (CONTENT_TYPE, content_type),
    ]
    if aggregate_type is not None:
        found.append((AGGREGATE_TYPE, aggregate_type))
    if aggregate_id is not None:
        found.append((AGGREGATE_ID, aggregate_id))
    if own is not None:
        found.extend(json.loads(own).items())
    return found


def from_wire(
    headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes, *, source: str, key: str | None
) -> Message:
    """Rebuild the message from what a broker delivered; ``source`` is the topic or queue it was read from.

    Also from a CloudEvent in Kafka's binary mode (:mod:`.cloudevents`), with a ``time``.
    Raises CannotDecode (PB-016) when the headers that identify an event are missing or malformed.
    """
    known = to_plain(dict(headers))
    try:
        event_id, event_type = known.pop(ID), known.pop(TYPE)
    except KeyError as error:
        raise CannotDecode(
            f"A message on {source!r} has no {error.args[0]!r} header: it was not published by an outbox.",
            fix="Keep foreign messages off this source, or map them before.",
        ) from error
    try:
        version = int(known.pop(VERSION, "1"))
        occurred_at = datetime.fromisoformat(known.pop(OCCURRED_AT))
        if occurred_at.utcoffset() is None:
            raise ValueError("occurredAt has no zone")
    except (KeyError, ValueError) as error:
        raise CannotDecode(f"Event {event_id} on {source!r} has unusable headers: {error!r}.") from error
    content_type = known.pop(CONTENT_TYPE, JSON)
    aggregate_type, aggregate_id = known.pop(AGGREGATE_TYPE, None), known.pop(AGGREGATE_ID, None)
    key = known.pop(KEY, key)
    own = json.dumps(known, ensure_ascii=False, separators=(",", ":")) if known else None
    return Message(
        event_id,
        event_type,
        version,
        aggregate_type,
        aggregate_id,
        key,
        occurred_at,
        own,
        content_type,
        body,
        source,
        None,
    )
