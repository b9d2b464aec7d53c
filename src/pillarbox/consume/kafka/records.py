"""A record as the client gives it, in our terms."""

from __future__ import annotations

from typing import NamedTuple, cast

from confluent_kafka import Message

from .partitions import Place, Position

Headers = list[tuple[str, str | bytes | None]]


class Record(NamedTuple):
    """Where a message stands, and the message as the client gave it, for copies."""

    position: Position
    message: Message
    original: str
    """Where it stood at first, as partition/offset."""


def place_of(message: Message) -> Place:
    """Its topic and partition."""
    return cast("str", message.topic()), cast("int", message.partition())


def readable_headers(message: Message) -> Headers:
    """The record's headers; none when the client cannot read them."""
    try:
        return cast("Headers", message.headers() or [])
    except (SystemError, UnicodeDecodeError):
        # The client's way to say that a header's name is no UTF-8. The others cannot be had without it.
        return []


def text_headers(message: Message) -> dict[str, str]:
    """Headers as text; one without value is left out, and of several of one name the last counts."""
    return {name: _text(value) for name, value in readable_headers(message) if value is not None}


def text_key(message: Message) -> str | None:
    """The key as text."""
    key = message.key()
    return None if key is None else _text(key)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
