"""What a handler is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from ..event.message import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Received(Generic[T]):
    """One event as it arrived, with its payload decoded to ``T``.

    Annotate a handler's parameter with ``Received[OrderCreated]`` for a typed payload, ``Received[bytes]`` for the raw
    body, or bare ``Received`` for the registered class (plain JSON types when the handler was registered by name).

    ``id`` is the event's identity wherever it goes: use it as idempotency key towards third parties. ``headers`` are
    the producer's own. ``redelivered`` is the broker's word that it delivered this before; it promises nothing.

    >>> def charge(event: Received[bytes]) -> str:
    ...     return f"Idempotency-Key: {event.id}"
    """

    id: str
    type: str
    version: int
    aggregate: tuple[str, str] | None
    key: str | None
    occurred_at: datetime
    headers: Mapping[str, str]
    payload: T
    content_type: str
    source: str
    redelivered: bool


def receive(message: Message, payload: T, *, redelivered: bool) -> Received[T]:
    """The handler's view of a message whose payload was decoded."""
    aggregate = None
    if message.aggregate_type is not None and message.aggregate_id is not None:
        aggregate = (message.aggregate_type, message.aggregate_id)
    return Received(
        id=message.event_id,
        type=message.event_type,
        version=message.schema_version,
        aggregate=aggregate,
        key=message.key,
        occurred_at=message.occurred_at,
        headers=json.loads(message.headers) if message.headers else {},
        payload=payload,
        content_type=message.content_type,
        source=message.destination,
        redelivered=redelivered,
    )
