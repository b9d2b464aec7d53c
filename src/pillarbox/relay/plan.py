"""From outcomes to one settlement: pure, so that every mixture of outcomes can be tested without a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, assert_never

from ..policy.retry import RetryPolicy
from ..policy.verdict import Kind, judge
from ..ports import (
    Claim,
    Confirmed,
    Delivery,
    Outcome,
    Parked,
    Rejected,
    Sent,
    Settlement,
    Unavailable,
    Unknown,
    Withheld,
    WorkKey,
)
from .triage import MAX_CLAIMS, Triage

Chance = Callable[[], float]
Pause = Callable[[str], float]
"""Seconds for which events of a destination in trouble wait."""


class Plan(NamedTuple):
    """What to write, and what it means for the breaker."""

    settlement: Settlement
    outage: str | None  # the reason, when an outcome says that the broker is out of reach
    answered: bool  # the broker took or refused at least one event
    unknown: int
    away: dict[str, str]  # destinations in trouble while the broker answers, and why


def plan(
    claim: Claim,
    published: Sequence[Delivery],
    outcomes: Sequence[Outcome],
    policy: RetryPolicy,
    chance: Chance,
    pause: Pause = lambda _destination: 1.0,
) -> Plan:
    """Decide each published event, one outcome each, and set the claim's orphans aside."""
    sent: list[Sent] = []
    parked = _orphans(claim)
    back: list[WorkKey] = []
    outage: str | None = None
    answered = False
    unknown = 0
    away: dict[str, str] = {}
    for delivery, outcome in zip(published, outcomes, strict=True):
        if isinstance(outcome, Confirmed):  # nearly always
            sent.append(Sent(delivery.key, outcome.partition, outcome.offset))
            continue
        kind = classify(outcome)
        destination = delivery.message.destination
        verdict = judge(kind, delivery.attempts, policy, chance(), pause=pause(destination))
        answered = answered or kind in ("permanent", "retryable")
        unknown += isinstance(outcome, Unknown)
        if kind == "destination-away":
            away.setdefault(destination, outcome.reason)
        if verdict.state == "BACK":
            back.append(delivery.key)
            outage = outage or outcome.reason
        else:
            assert verdict.state != "SENT"
            error = f"{kind}: {outcome.reason}"
            parked.append(Parked(delivery.key, delivery.lane, verdict.state, verdict.due_in, verdict.attempts, error))
    return Plan(Settlement(claim.token, sent, parked, back), outage, answered or bool(sent), unknown, away)


def aside(token: int, sorted_out: Triage) -> Settlement:
    """What is settled before a suspect group is sent: its neighbours go back, crash loops are given up."""
    return Settlement(token, (), [_crash_loop(d) for d in sorted_out.give_up], [d.key for d in sorted_out.give_back])


def classify(outcome: Outcome) -> Kind:
    """The failure class of an outcome."""
    match outcome:
        case Confirmed():
            return "confirmed"
        case Rejected(permanent=permanent):
            return "permanent" if permanent else "retryable"
        case Unknown(destination_healthy=True):
            return "unknown"
        case Unavailable(broker_answers=True) | Unknown(broker_answers=True):
            return "destination-away"
        case Unavailable() | Withheld():
            return "unavailable"
        case Unknown():
            return "unknown-in-outage"
        case _:
            assert_never(outcome)


def is_charged(row: Parked) -> bool:
    """False for an event that waits for its destination, through no fault of its own."""
    return not row.error.startswith("destination-away:")


def give_all_back(claim: Claim) -> Settlement:
    """Return a whole claim unsent: the relay is stopping."""
    return Settlement(claim.token, given_back=[d.key for d in claim.deliveries] + [o.key for o in claim.orphans])


def _crash_loop(delivery: Delivery) -> Parked:
    error = f"crash-loop: {MAX_CLAIMS} relays claimed this event and none came back; it stops the relay that sends it"
    return Parked(delivery.key, delivery.lane, "DEAD", None, delivery.attempts, error)


def _orphans(claim: Claim) -> list[Parked]:
    error = "orphan: the event row is missing (deleted by hand?); there is nothing to send"
    return [Parked(o.key, o.lane, "DEAD", None, o.attempts, error) for o in claim.orphans]
