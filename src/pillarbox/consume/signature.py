"""A handler's parameters, resolved when it is registered: a mistake shows at import and not at the first event."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from ..errors import BadHandler
from .received import Received

Fill = Literal["event", "events", "session", "connection"]


class Signature(NamedTuple):
    """How to call a handler: what each parameter is filled with, and what the payload is decoded into.

    ``payload`` None means that the handler left it open (bare ``Received``).
    """

    fills: tuple[tuple[str, Fill], ...]
    payload: Any | None
    positional: frozenset[str]


class Kind(NamedTuple):
    """What the consumer can call: ``asynchronous`` handlers only, or none; ``many`` events at a time, or one."""

    asynchronous: bool = False
    many: bool = False


def read_signature(function: Callable[..., object], local_names: Mapping[str, Any], kind: Kind = Kind()) -> Signature:
    """Resolve the parameters of ``function``; ``local_names`` are names visible where it was defined.

    Raises BadHandler (PB-040) for whatever could not be filled when an event arrives.
    """
    name = _name(function)
    _check_colour(function, name, kind)
    fills: list[tuple[str, Fill]] = []
    positional: set[str] = set()
    payload: Any = None
    for parameter in _parameters(function, name):
        annotation = _resolve(function, parameter, name, local_names, kind)
        fill = _fill(annotation, parameter, name, kind)
        if fill is None:
            continue
        fills.append((parameter.name, fill))
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.add(parameter.name)
        if fill in ("event", "events"):
            received = get_args(annotation)[0] if fill == "events" else annotation
            payload = get_args(received)[0] if get_args(received) else None
    _check_counts(fills, name, kind)
    return Signature(tuple(fills), payload, frozenset(positional))


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def _check_colour(function: Callable[..., object], name: str, kind: Kind) -> None:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.isasyncgenfunction(called):
        raise BadHandler(f"The handler {name!r} is a generator: its body would never run.", fix="Remove the `yield`.")
    if inspect.iscoroutinefunction(called) and not kind.asynchronous:
        raise BadHandler(
            f"The handler {name!r} is async; the consumer's engine is not.",
            fix="Give the consumer an AsyncEngine, or write `def` and take a sync Session or Connection.",
        )
    if kind.asynchronous and not inspect.iscoroutinefunction(called):
        raise BadHandler(
            f"The handler {name!r} is not async; the consumer's engine is, and it would hold up all other handlers.",
            fix="Write `async def`, or give the consumer a synchronous engine.",
        )
    if inspect.isgeneratorfunction(called):
        raise BadHandler(f"The handler {name!r} is a generator: its body would never run.", fix="Remove the `yield`.")


def _parameters(function: Callable[..., object], name: str) -> list[inspect.Parameter]:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise BadHandler(f"The handler {name!r} has no readable signature: {error}.", fix="Use a function.") from error
    return [p for p in found if not (p.annotation is p.empty and p.default is not p.empty)]


_SHOWN: Final = {
    Kind(): "Received[T], sqlalchemy.orm.Session or sqlalchemy.Connection",
    Kind(many=True): "list[Received[T]], sqlalchemy.orm.Session or sqlalchemy.Connection",
    Kind(asynchronous=True): "Received[T], AsyncSession or AsyncConnection",
    Kind(asynchronous=True, many=True): "list[Received[T]], AsyncSession or AsyncConnection",
}
_FIX: Final = {
    kind: f"Annotate one parameter {shown.partition(',')[0]} and, if wanted, one {shown.partition(', ')[2]}."
    for kind, shown in _SHOWN.items()
}
_GIVEN: Final[Mapping[object, tuple[bool, Fill]]] = {
    Session: (False, "session"),
    Connection: (False, "connection"),
    AsyncSession: (True, "session"),
    AsyncConnection: (True, "connection"),
}


def _resolve(
    function: Callable[..., object],
    parameter: inspect.Parameter,
    name: str,
    local_names: Mapping[str, Any],
    kind: Kind,
) -> object:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.annotation is parameter.empty:
        raise BadHandler(
            f"The parameter {parameter.name!r} of handler {name!r} is not annotated with {_SHOWN[kind]}.",
            fix=_FIX[kind],
        )
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


def _fill(annotation: object, parameter: inspect.Parameter, name: str, kind: Kind) -> Fill | None:
    if _is_received(annotation) and not kind.many:
        return "event"
    if kind.many and get_origin(annotation) in (list, Sequence) and _is_received(get_args(annotation)[0]):
        return "events"
    if annotation in _GIVEN:
        asynchronous, fill = _GIVEN[annotation]
        if asynchronous is not kind.asynchronous:
            it, engine = ("asynchronous", "is not") if asynchronous else ("synchronous", "is asynchronous")
            raise BadHandler(
                f"The parameter {parameter.name!r} of handler {name!r} is {it}; the consumer's engine {engine}.",
                fix=f"Annotate it with one of {_SHOWN[kind]}.",
            )
        return fill
    if parameter.default is not parameter.empty:
        return None  # not ours: the default stands
    shown = annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
    raise BadHandler(
        f"The parameter {parameter.name!r} of handler {name!r} is annotated {shown}, not {_SHOWN[kind]}.",
        fix=_FIX[kind],
    )


def _is_received(annotation: object) -> bool:
    return annotation is Received or get_origin(annotation) is Received


def _check_counts(fills: list[tuple[str, Fill]], name: str, kind: Kind) -> None:
    wanted: Fill = "events" if kind.many else "event"
    given = [fill for _, fill in fills]
    if given.count(wanted) != 1:
        shown, number = "list[Received[…]]" if kind.many else "Received[…]", given.count(wanted)
        raise BadHandler(f"The handler {name!r} must take exactly one {shown} parameter, it takes {number}.")
    if len(given) > 2:
        raise BadHandler(f"The handler {name!r} takes more than one Session or Connection; it gets one transaction.")
