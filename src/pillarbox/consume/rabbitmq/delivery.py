"""A delivery, and what becomes of its headers on the way in and into the dead-letter queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from typing import Any, NamedTuple

from pika import BasicProperties

_PERSISTENT = 2


class Delivery(NamedTuple):
    """Where a message stands with the broker: ``tag`` means something on the channel of that ``epoch`` only."""

    epoch: int
    tag: int
    exchange: str
    routing_key: str
    properties: BasicProperties


def text_headers(headers: Mapping[str, Any] | None) -> dict[str, str]:
    """AMQP header values as text; a header without value is left out."""
    return {name: _text(value) for name, value in (headers or {}).items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return json.dumps(value, default=str, ensure_ascii=False)


def dead_properties(original: BasicProperties, added: list[tuple[str, str]]) -> BasicProperties:
    """The original properties and headers, with ``added`` headers, persistent."""
    properties = copy(original)
    properties.headers = {**(original.headers or {}), **dict(added)}
    properties.delivery_mode = _PERSISTENT
    properties.expiration = None  # a dead letter waits for a person
    properties.user_id = None  # the broker refuses a user id that is not the connection's own
    return properties
