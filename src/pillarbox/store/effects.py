"""The record of effects outside the database: begun, settled, taken over. Each function is for one transaction.

States: ``started`` (its outcome is not known here: at work, or its process died), ``done`` (``answer``, or ``refusal``
when the answer was a final no), ``unknown`` (it failed without saying whether anything was done, or waits for a
person), ``not_done`` (nothing was done; it may be called). A row is written by who holds its ``claim``, a random word
of the attempt; ``done`` by anyone who knows it, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from . import dbtime
from .schema import inbox_effect

State = Literal["started", "done", "unknown", "not_done"]

IN_DOUBT: Final = ("unknown", "started")
MAX_ERROR: Final = 4_000


@dataclass(frozen=True, slots=True)
class EffectKey:
    """One step of what one consumer does for one event. ``id`` is the idempotency key."""

    id: str
    consumer: str
    event_id: str
    step: str


class Record(NamedTuple):
    """A row, as the calling side needs it. ``age``: seconds since the last attempt began."""

    state: str
    attempts: int
    claim: str
    age: float
    answer: str | None
    refusal: str | None
    error: str | None


def find(connection: Connection, effect_id: str) -> Record | None:
    """The effect's row."""
    c = inbox_effect.c
    age: Any = text(dbtime.age(connection, "started_at"))
    row = connection.execute(
        select(c.state, c.attempts, c.claim, age, c.answer, c.refusal, c.error).where(c.effect_id == effect_id)
    ).one_or_none()
    return None if row is None else Record(row[0], row[1], row[2], float(row[3]), row[4], row[5], row[6])


def begin(connection: Connection, effect: EffectKey, claim: str) -> Record | None:
    """Insert the row as ``started`` by this claim; None: it is. Else what is there. Bears a repetition."""
    there = find(connection, effect.id)
    if there is not None:
        return None if there.claim == claim and there.state == "started" else there
    now: Any = text(dbtime.now(connection))
    row = {"consumer": effect.consumer, "event_id": effect.event_id, "step": effect.step}
    values = {"effect_id": effect.id, **row, "state": "started", "attempts": 1, "claim": claim, "started_at": now}
    try:
        with connection.begin_nested():
            connection.execute(insert(inbox_effect).values(**values))
    except IntegrityError:
        there = find(connection, effect.id)
        if there is None:
            raise
        return there
    return None


def take_over(connection: Connection, effect_id: str, had: str, claim: str) -> bool:
    """Begin another attempt, if the row is as it was seen (claimed by ``had``) and not done. May be run again."""
    c = inbox_effect.c
    done = connection.execute(
        update(inbox_effect)
        .where(c.effect_id == effect_id, c.claim == had, c.state != "done")
        .values(
            state="started", claim=claim, attempts=c.attempts + 1, started_at=text(dbtime.now(connection)), error=None
        )
    )
    if done.rowcount:
        return True
    there = find(connection, effect_id)
    return there is not None and there.claim == claim and there.state == "started"


def settle(connection: Connection, effect_id: str, *, answer: str | None = None, refusal: str | None = None) -> Record:
    """Record the outcome, whoever began it, unless there is one; returns the row as it stands now."""
    c = inbox_effect.c
    connection.execute(
        update(inbox_effect)
        .where(c.effect_id == effect_id, c.state != "done")
        .values(state="done", answer=answer, refusal=refusal, error=None, settled_at=text(dbtime.now(connection)))
    )
    there = find(connection, effect_id)
    assert there is not None
    return there


def declare(connection: Connection, effect: EffectKey, claim: str, refusal: str) -> None:
    """Record a refusal that no call gave, unless there is an outcome."""
    begin(connection, effect, claim)
    settle(connection, effect.id, refusal=refusal)


def leave(connection: Connection, effect_id: str, claim: str, state: State, error: str) -> bool:
    """Record that this attempt ended ``unknown`` or ``not_done``; False: it is no longer this claim's."""
    c = inbox_effect.c
    done = connection.execute(
        update(inbox_effect)
        .where(c.effect_id == effect_id, c.claim == claim, c.state != "done")
        .values(state=state, error=error[:MAX_ERROR])
    )
    return bool(done.rowcount)
