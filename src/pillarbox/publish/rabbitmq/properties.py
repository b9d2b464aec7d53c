"""A message as AMQP properties."""

from __future__ import annotations

from functools import lru_cache
from struct import pack
from typing import Final

from pika import BasicProperties
from pika.exceptions import ShortStringTooLong

from ...event.message import KEY, Message, to_headers

_PERSISTENT: Final = 2
_FLAGS: Final = pack(
    ">H",
    BasicProperties.FLAG_CONTENT_TYPE
    | BasicProperties.FLAG_HEADERS
    | BasicProperties.FLAG_DELIVERY_MODE
    | BasicProperties.FLAG_MESSAGE_ID
    | BasicProperties.FLAG_TIMESTAMP
    | BasicProperties.FLAG_TYPE,
)


class MessageProperties(BasicProperties):  # type: ignore[misc]  # pika is untyped
    """What pika would encode from the same fields, in a fifth of the time: its encoder took a quarter of a publish.

    Message id, type, content type and time are where AMQP has a place for them; all of it, and the key, are headers.
    """

    def __init__(self, message: Message) -> None:
        self._message = message

    def encode(self) -> list[bytes]:
        """The property flags and values of a content header frame (AMQP 0-9-1, section 4.2.6)."""
        message = self._message
        headers = to_headers(message)
        if message.key is not None:
            headers.append((KEY, message.key))
        pieces = []
        for name, value in headers:
            encoded = value.encode()
            pieces.append(_field(name) + pack(">I", len(encoded)) + encoded)
        table = b"".join(pieces)
        # AMQP has no time before 1970 and no fractions; the header is exact.
        seconds = max(0, int(message.occurred_at.timestamp()))
        return [
            _FLAGS,
            _short(message.content_type),
            pack(">I", len(table)),
            table,
            pack("B", _PERSISTENT),
            _short(message.event_id),
            pack(">Q", seconds),
            _short(message.event_type),
        ]


def routing_key_of(message: Message) -> str:
    """The destination's routing key; a plain topic is routed by event type."""
    return message.event_type if message.routing_key is None else message.routing_key


@lru_cache(maxsize=1_024)
def _field(name: str) -> bytes:
    return _short(name) + b"S"  # S: a long string


def _short(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 255:
        raise ShortStringTooLong(encoded)
    return pack("B", len(encoded)) + encoded
