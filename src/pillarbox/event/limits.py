"""Limits and character rules for the names, ids and headers of an event."""

from __future__ import annotations

from ..errors import InvalidEvent

MAX_NAME = 255
"""Characters in a type, aggregate, key, topic or routing key (what the columns hold, and AMQP's short string)."""

_AMQP_SHORT = frozenset({"routing key", "exchange", "topic", "event type"})
"""What may become an exchange or a routing key: AMQP counts bytes."""

MAX_HEADERS_BYTES = 16_384
"""Bytes of all user headers together, encoded."""

DEFAULT_MAX_PAYLOAD_BYTES = 1_000_000
"""Fits, with headers, the 1,048,588 bytes that a Kafka broker accepts by default."""


def check_name(what: str, value: object, *, empty: bool = False, most: int = MAX_NAME) -> str:
    """Return ``value`` when it can travel through every database and broker, else raise InvalidEvent (PB-010)."""
    if not isinstance(value, str):
        raise InvalidEvent(f"The {what} must be a string, got {type(value).__name__}.", fix=f"Pass the {what} as str.")
    if not value and not empty:
        raise InvalidEvent(f"The {what} is empty.", fix=f"Give the {what} a name.")
    if len(value) > most:
        raise InvalidEvent(
            f"The {what} has {len(value)} characters, the limit is {most}: {value[:40]!r}…",
            fix=f"Shorten the {what}.",
        )
    if "\0" in value:
        raise InvalidEvent(
            f"The {what} holds a NUL character: {value!r}.", fix="Remove it: PostgreSQL cannot store it."
        )
    try:
        encoded = value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidEvent(
            f"The {what} holds a lone surrogate and is no valid text: {value!r}.",
            fix="Decode the input correctly first.",
        ) from error
    if what in _AMQP_SHORT and len(encoded) > MAX_NAME:
        raise InvalidEvent(f"The {what} has {len(encoded)} bytes, AMQP takes {MAX_NAME}.", fix=f"Shorten the {what}.")
    return value
