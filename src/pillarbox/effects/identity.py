"""The name of an effect, the same at every delivery: what third parties get as idempotency key."""

from __future__ import annotations

import json
from typing import Final, Protocol
from uuid import UUID, uuid5

from ..errors import InvalidEvent
from ..event.limits import check_name
from ..store.effects import EffectKey

MAX_STEP: Final = 90
MAX_NAME: Final = 100
OURS: Final = ":"
"""Steps of our own begin so: what was given up, what is undone."""

_NAMESPACE: Final = UUID("6f1c7c1e-5f0e-5a52-9c58-0d2f8f2f7a55")


class HasId(Protocol):
    """An event as a handler gets it: ``Received``, or anything with its id."""

    @property
    def id(self) -> str: ...


AnyEvent = HasId | UUID | str


def idempotency_key(consumer: str, event_id: str, step: str) -> str:
    """A UUID (version 5) of the JSON array ``[consumer, event id, step]``: 36 characters, which every provider takes.

    >>> idempotency_key("billing", "e-1", "charge")
    '4bf28e28-753a-5f3c-90ca-56f6c1b25a98'
    """
    return str(uuid5(_NAMESPACE, json.dumps([consumer, event_id, step], ensure_ascii=False, separators=(",", ":"))))


def effect_of(consumer: str, event: AnyEvent, step: str, *, ours: bool = False) -> EffectKey:
    """Check and name. Raises InvalidEvent (PB-010)."""
    event_id = event if isinstance(event, str) else str(event if isinstance(event, UUID) else event.id)
    check_name("event id", event_id, most=MAX_NAME)
    check_name("step", step, most=MAX_NAME if ours else MAX_STEP)
    if step.startswith(OURS) and not ours:
        raise InvalidEvent(f"The step {step!r} begins with a colon.", fix="Name it like the work: charge, notify.")
    return EffectKey(idempotency_key(consumer, event_id, step), consumer, event_id, step)
