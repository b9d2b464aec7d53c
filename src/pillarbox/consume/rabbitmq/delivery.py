"""A delivery, and what becomes of its headers on the way in and into the dead-letter queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from typing import Any, Final, NamedTuple

from pika import BasicProperties

from ..dead import LEFT_OUT

_PERSISTENT = 2

MAX_PROPERTIES: Final = 131_072 - 100
"""Bytes. RabbitMQ's frame_max, less what a frame holds besides the properties."""


_MAX_NAMES: Final = 500


class Delivery(NamedTuple):
    """Where a message stands with the broker: ``tag`` means something on the channel of that ``epoch`` only."""

    epoch: int
    tag: int
    exchange: str
    routing_key: str
    properties: BasicProperties


def text_headers(headers: Mapping[str, Any] | None) -> dict[str, str]:
    """AMQP headers as text; one without value is left out. pika gives a name that is no UTF-8 as bytes."""
    return {_text(name): _text(value) for name, value in (headers or {}).items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return json.dumps(value, default=str, ensure_ascii=False)


def dead_properties(
    original: BasicProperties, added: list[tuple[str, str]], *, most: int = MAX_PROPERTIES
) -> BasicProperties:
    """The original properties and headers, with ``added`` headers, persistent.

    All of them travel in one frame. Where they would take more than ``most`` bytes, the largest of the original headers
    are left out and named in ``deadLetterLeftOut``: the broker would cut the connection, and the message behind it wait
    for ever.
    """
    properties = copy(original)
    kept = dict(original.headers or {})
    left_out: list[str] = []
    while True:
        properties.headers = {**kept, **dict(added)}
        if left_out:
            properties.headers[LEFT_OUT] = ", ".join(left_out)[:_MAX_NAMES]
        if not kept or _size(properties) <= most:
            break
        largest = max(kept, key=lambda name: len(_text(kept[name])))
        del kept[largest]
        left_out.append(_text(largest))
    properties.delivery_mode = _PERSISTENT
    properties.expiration = None  # a dead letter waits for a person
    properties.user_id = None  # the broker refuses a user id that is not the connection's own
    return properties


def _size(properties: BasicProperties) -> int:
    return sum(map(len, properties.encode()))
