"""From an outcome to what is recorded: the failure classes and who is charged for them."""

from __future__ import annotations

from typing import Literal, NamedTuple, assert_never

from .retry import RetryPolicy

Kind = Literal["confirmed", "permanent", "retryable", "unavailable", "unknown", "unknown-in-outage", "destination-away"]


class Verdict(NamedTuple):
    """``state``: SENT, RETRY (``due_in`` seconds), DEAD, or BACK (given back at once, uncharged).

    ``attempts`` is the number to store. ``outage`` says that this outcome opens the breaker.
    """

    state: Literal["SENT", "RETRY", "DEAD", "BACK"]
    attempts: int
    due_in: float | None = None
    outage: bool = False


def judge(kind: Kind, attempts: int, policy: RetryPolicy, chance: float, *, pause: float = 1.0) -> Verdict:
    """Decide one event's fate.

    ``kind`` is the failure class, ``attempts`` the failures charged so far, ``chance`` a random number in [0, 1).
    Permanent is DEAD at once; retryable, and unknown on a healthy destination, are charged; an outage charges nobody.
    An outage of the destination alone lets the event wait for ``pause`` seconds, out of the way of the others.
    """
    match kind:
        case "confirmed":
            return Verdict("SENT", attempts)
        case "permanent":
            return Verdict("DEAD", attempts + 1)
        case "retryable" | "unknown":
            failed = attempts + 1
            if policy.exhausted(failed, unknown=kind == "unknown"):
                return Verdict("DEAD", failed)
            return Verdict("RETRY", failed, policy.delay(failed, chance))
        case "destination-away":
            return Verdict("RETRY", attempts, pause)
        case "unavailable" | "unknown-in-outage":
            return Verdict("BACK", attempts, outage=True)
        case _:
            assert_never(kind)
