"""Payload to bytes and back.

JSON without loss or nothing: Decimal, UUID, date and datetime become strings, big integers keep every digit, NaN and
Infinity are refused, text is UTF-8. Bytes pass untouched under their own content type.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

import msgspec

from ..errors import CannotDecode, InvalidEvent, NotSerialisable

JSON = "application/json"
_TWO: Final = tuple(f"{number:02d}" for number in range(60))
T = TypeVar("T")

_WRITTEN_HERE: Final = (Decimal, datetime)
"""What msgspec would damage: it takes Decimal("NaN"), and rounds offsets with seconds (old local times)."""


def encode(payload: object, *, event_type: str) -> bytes:
    """Encode ``payload`` as JSON bytes.

    Raises NotSerialisable (PB-011), naming the event type and what is in the way.
    """
    try:
        plain = msgspec.to_builtins(payload, str_keys=True, builtin_types=_WRITTEN_HERE, enc_hook=_encode_other)
        text = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_as_text)
        return text.encode("utf-8")
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError) as error:
        raise NotSerialisable(f"The payload of {event_type!r} cannot be written as JSON: {_reason(error)}.") from error


def check_raw(payload: bytes, content_type: str | None, *, event_type: str) -> str:
    """Return the content type that raw bytes must carry."""
    if not content_type:
        raise InvalidEvent(
            f"The payload of {event_type!r} is bytes, but no content type says what they are.",
            fix="Give Event(..., content_type='application/…').",
        )
    return content_type


def decode(body: bytes, into: type[T], *, event_type: str) -> T:
    """Decode JSON bytes into a dataclass, msgspec Struct or pydantic model; ``into=Any`` gives plain JSON types.

    Raises CannotDecode (PB-016).
    """
    try:
        validate = getattr(into, "model_validate_json", None)
        if validate is not None:
            return validate(body)  # type: ignore[no-any-return]
        if into is Any or into is object:
            # From text: given bytes, json guesses at UTF-16, too. And it would take NaN, which is no JSON.
            return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)  # type: ignore[no-any-return]
        return msgspec.json.decode(body, type=into, dec_hook=_decode_other)
    except Exception as error:  # whatever the __post_init__ or validator of the user's class raises
        name = "plain JSON" if into is Any else getattr(into, "__name__", str(into))
        raise CannotDecode(f"The body of {event_type!r} does not fit {name}: {_reason(error)}.") from error


def cannot_be_decoded(into: Any) -> str | None:
    """Why no body at all can be decoded into this type, e.g. for a union of two dataclasses; None when some can."""
    if hasattr(into, "model_validate_json"):
        return None
    try:
        msgspec.json.Decoder(into, dec_hook=_decode_other)
    except TypeError as error:
        return _reason(error)
    except NameError:
        return None  # a field's type that is defined further down in the module
    return None


def decode_plain(body: bytes, *, event_type: str) -> Any:
    """Decode JSON bytes into dict, list, str, int, float, bool and None."""
    return decode(body, Any, event_type=event_type)


def _encode_other(value: object) -> object:
    dump = getattr(value, "model_dump", None)  # pydantic, which the core does not import
    if dump is not None:
        return dump(mode="json", by_alias=True)  # the names that model_validate_json expects
    raise TypeError(f"objects of type {type(value).__qualname__} are not supported")


def _as_text(value: Decimal | datetime) -> object:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is no JSON")
        return str(value)
    offset = value.utcoffset()
    if offset is not None and (offset.seconds % 60 or offset.microseconds):
        value = value.astimezone(UTC)  # the same moment
    return msgspec.to_builtins(value)


def _decode_other(into: type, value: object) -> object:
    validate = getattr(into, "model_validate", None)  # a pydantic model inside a dataclass or Struct
    if validate is not None:
        return validate(value)
    raise TypeError(f"objects of type {into.__qualname__} are not supported")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply, or refers to itself"
    if isinstance(error, UnicodeEncodeError):
        return "it holds a lone surrogate, which is no valid text"
    if isinstance(error, LookupError):  # its text is only the key
        return f"{type(error).__name__}: {error}"
    return (str(error) or type(error).__name__).rstrip(".")


def as_utc_text(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds, e.g. ``2026-01-31T12:00:00.000001Z``: the form on the wire."""
    if moment.tzinfo is UTC and moment.year >= 1_000:
        # As isoformat would, in 0.7 of its 1.6 us: each published event pays for it.
        day = f"{moment.year}-{_TWO[moment.month]}-{_TWO[moment.day]}"
        fraction = str(1_000_000 + moment.microsecond)[1:]
        return f"{day}T{_TWO[moment.hour]}:{_TWO[moment.minute]}:{_TWO[moment.second]}.{fraction}Z"
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
