"""The lab's values as JSON and back, exactly: what a report says later is what the run found.

The form follows the model: a dataclass is an object of its fields and ``"is"``, its class; a set of outcomes is a
sorted list.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from . import model
from .model import NotVisible

IS: Final = "is"
"""The key that names the class of an object, where the field alone does not say it."""

T = TypeVar("T")


def to_json(value: object) -> Any:
    """``value`` of the model as what ``json.dumps`` takes.

    >>> to_json(model.Kill("send"))
    {'is': 'Kill', 'point': 'send'}
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        # JSON has no word for these, and a clock that could not be compared must not spoil the file.
        return value if math.isfinite(value) else {IS: "float", "text": repr(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return {IS: type(value).__name__} | {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, set | frozenset):
        return sorted((to_json(one) for one in value), key=str)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, Sequence):
        return [to_json(one) for one in value]
    return str(value)  # a Decimal, a date: evidence is read by people, and is no reason to end a run


def _mapping(value: Mapping[Any, Any]) -> Any:
    if all(isinstance(key, str) for key in value) and IS not in value:
        return {key: to_json(one) for key, one in value.items()}
    return {IS: "mapping", "items": [[to_json(key), to_json(one)] for key, one in value.items()]}


def from_json(kind: type[T], data: Any) -> T:
    """The value of class ``kind`` that :func:`to_json` made ``data`` from. ValueError when it is something else.

    >>> from_json(model.Kill, {"is": "Kill", "point": "send"})
    Kill(point='send')
    """
    return _value(kind, data)  # type: ignore[no-any-return]


def _value(kind: Any, data: Any) -> Any:
    if isinstance(kind, NewType):
        return _value(kind.__supertype__, data)
    origin = get_origin(kind)
    if kind is Any:
        return _anything(data)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), data)
    if origin is Literal:
        return _checked(data, data in get_args(kind), kind)
    if is_dataclass(kind):
        return _dataclass(kind, data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if origin is not None:
        return _container(origin, get_args(kind), data)
    if kind is float:
        return _float(data)
    return _checked(data, isinstance(data, kind) and (kind is not int or not isinstance(data, bool)), kind)


def _container(origin: Any, arguments: tuple[Any, ...], data: Any) -> Any:
    if issubclass(origin, Mapping):
        return _items(data, arguments[1])
    _checked(data, isinstance(data, list), origin)
    if origin is frozenset:
        return frozenset(_value(arguments[0], one) for one in data)
    return tuple(_value(arguments[0], one) for one in data)  # tuple[X, ...]: the model has no other


def _items(data: Any, kind: Any) -> dict[Any, Any]:
    _checked(data, isinstance(data, dict), Mapping)
    if data.get(IS) == "mapping":
        return {_anything(key): _value(kind, one) for key, one in data["items"]}
    return {key: _value(kind, one) for key, one in data.items()}


def _one_of(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None:
        return _checked(data, types.NoneType in kinds, kinds)
    if isinstance(data, dict) and data.get(IS) != "float":
        named = next((kind for kind in kinds if getattr(kind, "__name__", "") == data.get(IS)), None)
        return _value(_checked(named, named is not None, kinds), data)
    plain = [kind for kind in kinds if kind is not types.NoneType and not is_dataclass(kind)]
    return _value(_checked(plain, len(plain) == 1, kinds)[0], data)


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _dataclass(kind: Any, data: Any) -> Any:
    _checked(data, isinstance(data, dict) and data.get(IS) == kind.__name__, kind)
    hints = _hints(kind)
    # A field that a later release has is left out, one that it lacks has its default: old runs stay readable.
    return kind(**{name: _value(hint, data[name]) for name, hint in hints.items() if name in data})


def _float(data: Any) -> float:
    if isinstance(data, dict) and data.get(IS) == "float":
        return float(data["text"])
    return float(_checked(data, isinstance(data, int | float) and not isinstance(data, bool), float))


def _anything(data: Any) -> Any:
    if isinstance(data, list):
        return [_anything(one) for one in data]
    if not isinstance(data, dict):
        return data
    match data.get(IS):
        case None | "mapping":
            return _items(data, Any)
        case "float":
            return _float(data)
        case "NotVisible":
            return _value(NotVisible, data)
        case name:
            return _value(
                _checked(getattr(model, str(name), None), is_dataclass(getattr(model, str(name), 0)), model), data
            )


def _checked(value: Any, fits: bool, kind: object) -> Any:
    if not fits:
        raise ValueError(f"{str(value)[:80]!r} is no {getattr(kind, '__name__', kind)}")
    return value
