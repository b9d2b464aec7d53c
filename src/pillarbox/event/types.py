"""Event types: the name and schema version that a payload class carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ..errors import InvalidEvent, NotAnEventType
from .limits import check_name

C = TypeVar("C", bound=type)
_ATTRIBUTE = "__pillarbox_event_type__"
_NEWER = "__pillarbox_accepts_newer__"


class EventType(NamedTuple):
    """A type's name on the wire and the version of its schema (from 1)."""

    name: str
    version: int = 1


def event_type(name: str, *, version: int = 1, accept_newer: bool = False) -> Callable[[C], C]:
    """Class decorator: instances of the class are payloads of events of this type.

    A consumer that receives a lower version lifts it (:func:`pillarbox.upcaster`); a higher one goes where its
    ``newer`` says, unless ``accept_newer``: producers only ever add fields, which this reader may leave out.

    The class is returned unchanged. Works on dataclasses (slots too), msgspec Structs and pydantic models.
    """
    declared = EventType(check_name("event type", name), check_version(version))

    def mark(cls: C) -> C:
        setattr(cls, _ATTRIBUTE, declared)
        setattr(cls, _NEWER, accept_newer)
        return cls

    return mark


def declared_type(cls: type) -> EventType:
    """The event type of a decorated class; NotAnEventType (PB-015) when it has none of its own."""
    found = cls.__dict__.get(_ATTRIBUTE) if isinstance(cls, type) else None
    if not isinstance(found, EventType):
        raise NotAnEventType(f"{getattr(cls, '__qualname__', cls)!s} carries no event type.")
    return found


def accepts_newer(cls: type) -> bool:
    """Whether the class of an event type reads higher versions as its own."""
    return bool(cls.__dict__.get(_NEWER, False))


def check_version(version: object) -> int:
    """Schema versions are whole numbers from 1 to 2**31 - 1."""
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version < 2**31:
        raise InvalidEvent(
            f"The schema version must be a whole number from 1, got {version!r}.", fix="Pass e.g. version=1."
        )
    return version
