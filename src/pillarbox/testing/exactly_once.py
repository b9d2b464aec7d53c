"""Whether each event had its effect exactly once, asked of the rows that it left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, FromClause, Select, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from ..errors import WrongColour

Effects = Select[Any] | ColumnElement[Any] | InstrumentedAttribute[Any] | FromClause | type[Any]
_LISTED = 10  # ids of each kind in the message
_PAUSE = 0.02  # seconds between two looks


def assert_exactly_once_effect(
    database: Engine | Connection | Session,
    effects: Effects,
    expected: Iterable[UUID | str],
    *,
    within: float = 0.0,
) -> None:
    """Assert that the effect rows name each of the ``expected`` events once, and no other event.

    ``effects`` says where the event ids of the effects are: a column (``payment.c.event_id``, ``Payment.event_id``), a
    select of one column, or a table or mapped class with ``event_id``. Ids may be UUIDs, text or 16 bytes on either
    side.
    ``within`` waits so many seconds for effects that are still missing; a doubled or foreign one fails at once.

    Raises AssertionError, which names what is missing, doubled and foreign.
    """
    __tracebackhide__ = True
    wanted = {_id(one) for one in expected}
    query = _query(effects)
    deadline = time.monotonic() + within
    while True:
        found = Counter(_id(one) for one in _read(database, query))
        missing = sorted(wanted - found.keys())
        if found.keys() - wanted or any(count > 1 for count in found.values()):
            break
        if not missing:
            return
        if time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE)
    raise AssertionError(_message(wanted, found))


def _message(wanted: set[str], found: Counter[str]) -> str:
    once = sum(found[one] == 1 for one in wanted)
    lines = [f"{once} of {len(wanted)} events had their effect exactly once."]
    lines += _listed("missing", sorted(wanted - found.keys()))
    lines += _listed("doubled", [f"{one} ({found[one]} times)" for one in sorted(wanted) if found[one] > 1])
    lines += _listed("foreign", [f"{one} ({found[one]} times)" for one in sorted(found.keys() - wanted)])
    return "\n".join(lines)


def _listed(kind: str, ids: list[str]) -> list[str]:
    if not ids:
        return []
    more = f", and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    return [f"  {kind} ({len(ids)}): {', '.join(ids[:_LISTED])}{more}"]


def _query(effects: Effects) -> Select[Any]:
    if isinstance(effects, Select):
        return effects
    if isinstance(effects, type):
        return select(effects.event_id)  # a mapped class; selected as it is, it would give whole rows
    return select(effects.c.event_id) if isinstance(effects, FromClause) else select(effects)


def _read(database: Engine | Connection | Session, query: Select[Any]) -> list[Any]:
    if isinstance(database, Engine):
        with database.connect() as connection:
            return list(connection.scalars(query))
    if isinstance(database, Connection | Session):
        return list(database.scalars(query))
    raise WrongColour(f"The effects are read through an Engine, Connection or Session, not {type(database).__name__}.")


def _id(value: object) -> str:
    """One text for every form of a UUID; anything else as it is."""
    if isinstance(value, bytes) and len(value) == 16:
        return str(UUID(bytes=value))
    try:
        return str(UUID(str(value)))
    except ValueError:
        return str(value)
