"""A handler's parameters, resolved when it is registered: a mistake shows at import and not at the first event."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session

from ..errors import BadHandler
from .received import Received

Fill = Literal["event", "session", "connection"]


class Signature(NamedTuple):
    """How to call a handler: what each parameter is filled with, and what the payload is decoded into.

    ``payload`` None means that the handler left it open (bare ``Received``).
    """

    fills: tuple[tuple[str, Fill], ...]
    payload: Any | None
    positional: frozenset[str]


def read_signature(function: Callable[..., object], local_names: Mapping[str, Any]) -> Signature:
    """Resolve the parameters of ``function``; ``local_names`` are names visible where it was defined.

    Raises BadHandler (PB-040) for whatever could not be filled when an event arrives.
    """
    name = _name(function)
    _refuse_async(function, name)
    fills: list[tuple[str, Fill]] = []
    positional: set[str] = set()
    payload: Any = None
    for parameter in _parameters(function, name):
        annotation = _resolve(function, parameter, name, local_names)
        fill = _fill(annotation, parameter, name)
        if fill is None:
            continue
        fills.append((parameter.name, fill))
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.add(parameter.name)
        if fill == "event":
            payload = get_args(annotation)[0] if get_args(annotation) else None
    _check_counts(fills, name)
    return Signature(tuple(fills), payload, frozenset(positional))


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def _refuse_async(function: Callable[..., object], name: str) -> None:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise BadHandler(
            f"The handler {name!r} is async; consumers run sync handlers for now.",
            fix="Write it with `def` and a sync Session or Connection.",
        )
    if inspect.isgeneratorfunction(called):
        raise BadHandler(f"The handler {name!r} is a generator: its body would never run.", fix="Remove the `yield`.")


def _parameters(function: Callable[..., object], name: str) -> list[inspect.Parameter]:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise BadHandler(f"The handler {name!r} has no readable signature: {error}.", fix="Use a function.") from error
    return [p for p in found if not (p.annotation is p.empty and p.default is not p.empty)]


_SHOWN: Final = "Received[T], sqlalchemy.orm.Session or sqlalchemy.Connection"


def _resolve(
    function: Callable[..., object], parameter: inspect.Parameter, name: str, local_names: Mapping[str, Any]
) -> object:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.annotation is parameter.empty:
        raise BadHandler(f"The parameter {parameter.name!r} of handler {name!r} is not annotated with {_SHOWN}.")
    inner = inspect.unwrap(function)
    known = getattr(getattr(inner, "__func__", inner), "__globals__", {})
    if not known and not inspect.isroutine(inner):
        known = getattr(type(inner).__call__, "__globals__", {})
    # One parameter at a time: a return type that exists only under TYPE_CHECKING must not matter.
    alone = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(alone, dict(known), dict(local_names))[parameter.name]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise BadHandler(
            f"The annotation {parameter.annotation!r} of parameter {parameter.name!r} of handler {name!r} cannot be "
            f"resolved: {error}.",
            fix="Import the name at run time (not only under TYPE_CHECKING), at the top of the module.",
        ) from error


def _fill(annotation: object, parameter: inspect.Parameter, name: str) -> Fill | None:
    if annotation is Received or get_origin(annotation) is Received:
        return "event"
    if annotation is Session:
        return "session"
    if annotation is Connection:
        return "connection"
    if annotation in (AsyncSession, AsyncConnection) or get_origin(annotation) is async_scoped_session:
        raise BadHandler(
            f"The parameter {parameter.name!r} of handler {name!r} is asynchronous; handlers are sync for now.",
            fix="Annotate it with sqlalchemy.orm.Session or sqlalchemy.Connection.",
        )
    if parameter.default is not parameter.empty:
        return None  # not ours: the default stands
    shown = getattr(annotation, "__qualname__", None) or str(annotation)
    raise BadHandler(f"The parameter {parameter.name!r} of handler {name!r} is annotated {shown}, not {_SHOWN}.")


def _check_counts(fills: list[tuple[str, Fill]], name: str) -> None:
    given = [fill for _, fill in fills]
    if given.count("event") != 1:
        number = given.count("event")
        raise BadHandler(f"The handler {name!r} must take exactly one Received[…] parameter, it takes {number}.")
    if len(given) > 2:
        raise BadHandler(f"The handler {name!r} takes more than one Session or Connection; it gets one transaction.")
