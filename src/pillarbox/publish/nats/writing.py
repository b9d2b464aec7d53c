"""A message's headers on the wire: its own, and those by which the server knows it."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from ...event.message import KEY, Message, to_headers
from .headers import written
from .url import NatsUrl

MSG_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"


def headers_of(message: Message, subject: str, url: NatsUrl) -> dict[str, str]:
    """The event's headers and key, its id for the server's duplicate window, and the stream that the URL names."""
    plain = to_headers(message)
    if message.key is not None:
        plain.append((KEY, message.key))
    headers = written(plain)
    if url.deduplicate:
        # With the subject: one stream may have both destinations of an event, and would drop the second.
        headers[MSG_ID] = quote(f"{message.event_id}:{subject}", safe=":*>/")
    if url.stream is not None:
        headers[EXPECTED_STREAM] = url.stream
    return headers
