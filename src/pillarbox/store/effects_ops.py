"""Effects as operators see them: what is in doubt, one with its history, and a person's word on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, text, update

from . import dbtime
from .schema import inbox_effect, inbox_resolution


class Effect(NamedTuple):
    """One effect. ``error_type`` is the name of the error alone: its text may tell of people."""

    id: str
    consumer: str
    event_id: str
    step: str
    state: str
    attempts: int
    started_at: datetime
    error_type: str


class Resolution(NamedTuple):
    """What a person decided."""

    resolved_at: datetime
    resolved_by: str
    reason: str
    was: str
    verdict: str


class EffectDetails(NamedTuple):
    """All of it: the last error's whole text, the kept answer as JSON, and the decisions so far."""

    effect: Effect
    error: str | None
    answer: str | None
    refusal: str | None
    resolutions: list[Resolution]


def in_doubt(
    connection: Connection, states: Sequence[str], *, consumer: str | None, older_than: float, limit: int
) -> list[Effect]:
    """The effects in these states that began more than ``older_than`` seconds ago, the oldest first."""
    c = inbox_effect.c
    old: Any = text(f"started_at <= {dbtime.after(connection, f'{-older_than:.3f}')}")
    found: list[Effect] = []
    for state in states:  # one range of the index each
        query = _query().where(c.state == state, old).order_by(c.started_at).limit(limit)
        found += [
            _effect(row)
            for row in connection.execute(query if consumer is None else query.where(c.consumer == consumer))
        ]
    return sorted(found, key=lambda one: one.started_at)[:limit]


def details(connection: Connection, effect_id: str) -> EffectDetails | None:
    """One effect and its history."""
    row = connection.execute(_query().where(inbox_effect.c.effect_id == effect_id)).one_or_none()
    if row is None:
        return None
    c = inbox_resolution.c
    history = connection.execute(
        select(c.resolved_at, c.resolved_by, c.reason, c.was, c.verdict).where(c.effect_id == effect_id).order_by(c.seq)
    )
    return EffectDetails(
        _effect(row),
        row.error,
        row.answer,
        row.refusal,
        [Resolution(dbtime.aware(one[0]), *one[1:]) for one in history],
    )


def resolve(
    connection: Connection,
    effect_id: str,
    was: str,
    verdict: str,
    *,
    claim: str,
    answer: str | None,
    refusal: str | None,
    by: str,
    reason: str,
) -> bool:
    """Write a person's verdict (done, refused, not_done) and who gave it; False: the effect is no longer ``was``."""
    c = inbox_effect.c
    now: Any = text(dbtime.now(connection))
    error = connection.execute(select(c.error).where(c.effect_id == effect_id)).scalar_one_or_none()
    state = "not_done" if verdict == "not_done" else "done"
    values: dict[str, Any] = {"state": state, "claim": claim, "answer": answer, "refusal": refusal}
    changed = connection.execute(
        update(inbox_effect)
        .where(c.effect_id == effect_id, c.state == was)
        .values(**values, settled_at=None if state == "not_done" else now)
    )
    if not changed.rowcount:
        return False
    note = {"resolved_by": by, "reason": reason, "was": was, "verdict": verdict, "error": error}
    connection.execute(insert(inbox_resolution).values(effect_id=effect_id, resolved_at=now, **note))
    return True


def remove_done(connection: Connection, keep: float, limit: int) -> int:
    """Delete up to ``limit`` effects that are done and began more than ``keep`` seconds ago; returns how many."""
    c = inbox_effect.c
    old: Any = text(f"started_at < {dbtime.after(connection, f'{-keep:.3f}')}")
    ids = connection.scalars(
        select(c.effect_id).where(c.state == "done", old).order_by(c.started_at).limit(limit)
    ).all()
    if ids:
        connection.execute(delete(inbox_resolution).where(inbox_resolution.c.effect_id.in_(ids)))
        connection.execute(delete(inbox_effect).where(c.effect_id.in_(ids), c.state == "done"))
    return len(ids)


def count_done(connection: Connection, keep: float) -> int:
    """How many :func:`remove_done` would delete."""
    c = inbox_effect.c
    old: Any = text(f"started_at < {dbtime.after(connection, f'{-keep:.3f}')}")
    return connection.scalars(select(func.count()).where(c.state == "done", old)).one()


def _query() -> Any:
    c = inbox_effect.c
    columns = (
        c.effect_id,
        c.consumer,
        c.event_id,
        c.step,
        c.state,
        c.attempts,
        c.started_at,
        c.error,
        c.answer,
        c.refusal,
    )
    return select(*columns)


def _effect(row: Any) -> Effect:
    kind = (row.error or "").partition(":")[0]
    at = dbtime.aware(row.started_at)
    return Effect(row.effect_id, row.consumer, row.event_id, row.step, row.state, row.attempts, at, kind)
