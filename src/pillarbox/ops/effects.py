"""A person's word on effects in doubt, for the record."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection

from ..errors import ConfigError, EffectNotFound, InvalidEvent
from ..store import effects_ops
from ..store.effects import IN_DOUBT
from ..store.effects_ops import Effect, EffectDetails, Resolution

__all__ = ["Effect", "EffectDetails", "Resolution", "Verdict", "details", "in_doubt", "resolve"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``done``: it was done, with this answer (JSON text; None: an answer of null). ``refused``: it was not done and
    must not be. ``not_done``: it was not, and the next delivery may call again. ``by`` and ``reason`` are kept."""

    kind: Literal["done", "refused", "not_done"]
    by: str
    reason: str
    answer: str | None = None

    def __post_init__(self) -> None:
        if not self.by or not self.reason:
            raise ConfigError("Who decides, and why, must be given.", fix="Pass --by and --reason.")
        try:
            json.loads(self.answer or "null")
        except ValueError as error:
            raise InvalidEvent(f"The answer is no JSON: {error}.", fix="""Quote it: '{"id": 7}'.""") from error


def in_doubt(
    connection: Connection,
    *,
    consumer: str | None = None,
    older_than: float = 0.0,
    limit: int = 50,
    states: Sequence[str] = IN_DOUBT,
) -> list[Effect]:
    """Effects whose outcome is not known, begun more than ``older_than`` seconds ago, the oldest first. Those that are
    ``started`` may be at work."""
    return effects_ops.in_doubt(connection, states, consumer=consumer, older_than=older_than, limit=limit)


def details(connection: Connection, effect_id: str) -> EffectDetails:
    """One effect; EffectNotFound (PB-047)."""
    found = effects_ops.details(connection, effect_id)
    if found is None:
        raise EffectNotFound(f"There is no effect {effect_id!r}.")
    return found


def resolve(connection: Connection, effect_id: str, verdict: Verdict, *, started: bool = False) -> Effect:
    """Settle it by a person's word, and keep that; returns what it was.

    One that is ``started`` may be at work this very moment: ``started`` says that it is not. What is done is not
    touched. Raises EffectNotFound (PB-047).
    """
    found = details(connection, effect_id).effect
    if found.state not in IN_DOUBT or (found.state == "started" and not started):
        raise EffectNotFound(
            f"The effect {effect_id} is not in doubt but {found.state}.",
            fix="If you know that its process is gone: --started." if found.state == "started" else "Nothing to do.",
        )
    changed = effects_ops.resolve(
        connection,
        effect_id,
        found.state,
        verdict.kind,
        claim=secrets.token_hex(16),
        answer=verdict.answer if verdict.kind == "done" else None,
        refusal=verdict.reason if verdict.kind == "refused" else None,
        by=verdict.by,
        reason=verdict.reason,
    )
    if not changed:
        raise EffectNotFound(f"The effect {effect_id} has just been settled.", fix="Look again.")
    return found
