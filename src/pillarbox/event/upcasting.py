"""Old payloads as the newest class wants them: one function per version, each leading to the next, chained.

What is stored, and what lies in the broker, is never rewritten: an event of version 1 stays one, and is lifted when it
is read. An upcaster is kept on the class that it leads to, so that two classes of one type in one process do not mix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..errors import CannotDecode, InvalidEvent, NewerSchemaVersion, NotAnEventType
from .types import EventType, accepts_newer, check_version, declared_type

_ATTRIBUTE: Final = "__pillarbox_upcasters__"

Upcaster = Callable[[Any], Any]
U = TypeVar("U", bound=Upcaster)


def upcaster(cls: type, version: int) -> Callable[[U], U]:
    """Decorator: the function takes a payload of ``version``, as plain JSON types, and returns one of ``version + 1``.

    ``cls`` is an ``@event_type`` class of a higher version. A version without upcaster passes as it is: a field that
    was added with a default needs none. Raises NotAnEventType (PB-015), and InvalidEvent (PB-010) for a version that
    does not lead to the class's, or has an upcaster already.

    >>> from dataclasses import dataclass
    >>> from pillarbox import event_type
    >>> @event_type("order.created", version=2)
    ... @dataclass(frozen=True)
    ... class OrderCreated:
    ...     total: str
    ...     currency: str
    >>> @upcaster(OrderCreated, version=1)
    ... def all_were_euros(payload: dict[str, object]) -> dict[str, object]:
    ...     return {**payload, "currency": "EUR"}
    """
    declared = declared_type(cls)
    if check_version(version) >= declared.version:
        raise InvalidEvent(
            f"{cls.__qualname__} has version {declared.version}: nothing leads there from {version}.",
            fix="Give the version that the function takes, which is below the class's.",
        )

    def register(function: U) -> U:
        known: dict[int, Upcaster] = cls.__dict__.get(_ATTRIBUTE, {})
        if version in known:
            raise InvalidEvent(
                f"{cls.__qualname__} has an upcaster from version {version}.", fix="Keep one of the two."
            )
        setattr(cls, _ATTRIBUTE, {**known, version: function})
        return function

    return register


def upcasters_of(cls: object) -> dict[int, Upcaster]:
    """The class's own, by the version that they take."""
    found: dict[int, Upcaster] = cls.__dict__.get(_ATTRIBUTE, {}) if isinstance(cls, type) else {}
    return found


def needs_lift(into: object, event_type: str, version: int) -> bool:
    """Whether a payload of this type and version must be lifted before it is decoded into the class ``into``.

    Raises NewerSchemaVersion (PB-017) when the version is higher than the class's, unless the class accepts that.
    """
    declared = _declared(into)
    if declared is None or not isinstance(into, type) or declared.name != event_type or version == declared.version:
        return False
    if version > declared.version:
        if accepts_newer(into):
            return False
        raise NewerSchemaVersion(
            f"The event has version {version} of {event_type!r}, and this consumer knows {declared.version}."
        )
    return any(version <= one < declared.version for one in upcasters_of(into))


def lift(into: type, payload: Any, version: int) -> Any:
    """The payload of ``version``, in plain JSON types, as one of the class's version. Raises CannotDecode (PB-016) with
    the upcaster's own error."""
    known = upcasters_of(into)
    # By the upcasters, and not by the versions between: who sends version -10**12 must not keep us for hours.
    for step in sorted(step for step in known if version <= step < declared_type(into).version):
        try:
            payload = known[step](payload)
        except Exception as error:  # whatever the user's function raises
            name = getattr(known[step], "__qualname__", repr(known[step]))
            raise CannotDecode(
                f"The upcaster {name} from version {step} failed: {type(error).__name__}: {error}.",
                fix="Correct it, and replay the dead letter.",
            ) from error
    return payload


def _declared(into: object) -> EventType | None:
    try:
        return declared_type(into) if isinstance(into, type) else None
    except NotAnEventType:
        return None
