"""A delivery, and what becomes of its headers on the way in and into a queue beside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from typing import Any, Final, NamedTuple

from pika import BasicProperties

from ..dead import LEFT_OUT
from ..retries import REASON

_PERSISTENT = 2

MAX_PROPERTIES: Final = 131_072 - 100
"""Bytes. RabbitMQ's frame_max, less what a frame holds besides the properties."""


_MAX_NAMES: Final = 500

_OF_THE_QUEUE: Final = frozenset({"x-delivery-count", "x-acquired-count"})
"""What a quorum queue notes of a delivery. It is no header of the message, and would be wrong in another queue."""

_INSTRUCTIONS: Final = frozenset({"CC", "BCC"})
"""To the broker: other queues would get a copy, too."""


class Delivery(NamedTuple):
    """Where a message stands with the broker: ``tag`` means something on the channel of that ``epoch`` only."""

    epoch: int
    tag: int
    exchange: str
    routing_key: str
    properties: BasicProperties  # without what a retry queue added
    before: str = ""  # where it stood at first, of one that comes from a retry queue

    @property
    def original(self) -> str:
        """Where it stood at first, as exchange/routing key."""
        return self.before or f"{self.exchange}/{self.routing_key}"


def without_deaths(headers: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The headers without the broker's own notes about queues that begin with ``prefix``."""
    kept = dict(headers)
    if str(kept.get("x-first-death-queue", "")).startswith(prefix):
        kept = {name: value for name, value in kept.items() if not name.startswith("x-first-death-")}
    if str(kept.get("x-last-death-queue", "")).startswith(prefix):
        kept = {name: value for name, value in kept.items() if not name.startswith("x-last-death-")}
    deaths = kept.pop("x-death", None)
    if isinstance(deaths, list):
        deaths = [one for one in deaths if not isinstance(one, dict) or not _of(one, prefix)]
    return {**kept, "x-death": deaths} if deaths else kept


def _of(death: Mapping[str, Any], prefix: str) -> bool:
    return str(death.get("queue", "")).startswith(prefix)


def text_headers(headers: Mapping[str, Any] | None) -> dict[str, str]:
    """AMQP headers as text; one without value is left out. pika gives a name that is no UTF-8 as bytes."""
    given = (headers or {}).items()
    return {_text(name): _text(value) for name, value in given if value is not None and name not in _OF_THE_QUEUE}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return json.dumps(_with_text_names(value), default=str, ensure_ascii=False)


def _with_text_names(value: object) -> object:
    """Names inside of a table may be no UTF-8, too; an error here would cut the connection, again and again."""
    if isinstance(value, dict):
        return {_text(name): _with_text_names(one) for name, one in value.items()}
    return [_with_text_names(one) for one in value] if isinstance(value, list) else value


def copy_properties(
    original: BasicProperties, added: list[tuple[str, str]], *, most: int = MAX_PROPERTIES
) -> BasicProperties:
    """The original properties and headers, with ``added`` headers, persistent.

    All of them travel in one frame. Where they would take more than ``most`` bytes, first the reason of a retry and
    then the largest of the original headers are left out and named in ``deadLetterLeftOut``: the broker would cut the
    connection, and the message behind it wait for ever.
    """
    properties = copy(original)
    not_copied = _INSTRUCTIONS | _OF_THE_QUEUE
    kept = {name: value for name, value in (original.headers or {}).items() if name not in not_copied}
    more = dict(added)
    left_out: list[str] = []
    while True:
        properties.headers = {**kept, **more}
        if left_out:
            properties.headers[LEFT_OUT] = ", ".join(left_out)[:_MAX_NAMES]
        if _size(properties) <= most:
            break
        if more.pop(REASON, None) is None:
            if not kept:
                break
            largest = max(kept, key=lambda name: len(_text(kept[name])))
            del kept[largest]
            left_out.append(_text(largest))
    properties.delivery_mode = _PERSISTENT
    properties.expiration = None  # a dead letter waits for a person, and a retry for its own time
    properties.user_id = None  # the broker refuses a user id that is not the connection's own
    return properties


def _size(properties: BasicProperties) -> int:
    return sum(map(len, properties.encode()))
