"""Committed events as a test looks at them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar, overload
from uuid import UUID

from ..consume.handlers import decode_payload
from ..event.destination import Destination
from ..event.message import Message

P = TypeVar("P")


class Stored(NamedTuple):
    """An event as its transaction wrote it: one message for each destination."""

    messages: tuple[Message, ...]

    @property
    def type(self) -> str:
        return self.messages[0].event_type


@dataclass(frozen=True, slots=True)
class CommittedEvent(Generic[P]):
    """One event of the outbox.

    ``to`` is where it goes (the first place, if there are several): a topic's name, or a Destination with routing key.
    """

    id: UUID
    type: str
    version: int
    payload: P
    to: str | Destination
    destinations: tuple[Destination, ...]
    aggregate: tuple[str, str] | None
    key: str | None
    headers: dict[str, str]
    occurred_at: datetime
    content_type: str


class CommittedEvents(Sequence[CommittedEvent[P]]):
    """Events in the order in which their transactions committed."""

    def __init__(self, found: Sequence[CommittedEvent[P]], there: Sequence[str]) -> None:
        self._found = list(found)
        self._there = list(there)

    def one(self) -> CommittedEvent[P]:
        """The only one; AssertionError, which tells what there is instead, when there is none or more."""
        if len(self._found) != 1:
            there = ", ".join(self._there) or "nothing"
            raise AssertionError(f"expected one committed event, found {len(self._found)}; committed were: {there}")
        return self._found[0]

    def all(self) -> list[CommittedEvent[P]]:
        """All of them."""
        return list(self._found)

    @overload
    def __getitem__(self, index: int) -> CommittedEvent[P]: ...

    @overload
    def __getitem__(self, index: slice) -> list[CommittedEvent[P]]: ...

    def __getitem__(self, index: int | slice) -> CommittedEvent[P] | list[CommittedEvent[P]]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"CommittedEvents({self._found!r})"


def as_committed(stored: Stored, into: Any) -> CommittedEvent[Any]:
    """Decode the payload into the class, or Any for plain JSON types; raises CannotDecode (PB-016)."""
    first = stored.messages[0]
    places = tuple(Destination(message.destination, message.routing_key) for message in stored.messages)
    aggregate = None
    if first.aggregate_type is not None and first.aggregate_id is not None:
        aggregate = (first.aggregate_type, first.aggregate_id)
    return CommittedEvent(
        id=UUID(first.event_id),
        type=first.event_type,
        version=first.schema_version,
        payload=decode_payload(first, into),
        to=places[0].name if places[0].routing_key is None else places[0],
        destinations=places,
        aggregate=aggregate,
        key=first.key,
        headers=json.loads(first.headers) if first.headers else {},
        occurred_at=first.occurred_at,
        content_type=first.content_type,
    )
