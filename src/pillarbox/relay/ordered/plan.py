"""From outcomes to a settlement: pure, so that every mixture of outcomes can be tested without broker or database.

Order rests on this: in each stream, what was not confirmed stays, and so does everything behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...policy.retry import RetryPolicy
from ...policy.verdict import judge
from ...ports import (
    EVERY_LANE,
    Aside,
    Confirmed,
    Delivery,
    Hold,
    Outcome,
    Rejected,
    Sent,
    SentParked,
    Stream,
    Unknown,
    Withheld,
)
from ..plan import classify
from .estate import Streams
from .rounds import Round, behind

_new_tuple = tuple.__new__

OnFailure = Literal["hold", "skip"]
Pause = Callable[[str], float]


class Rules(NamedTuple):
    """What decides: retries, whether later events of a key wait for a failed one, chance, and pauses."""

    retry: RetryPolicy
    on_failure: OnFailure
    chance: Callable[[], float]
    pause: Pause


@dataclass(slots=True)
class Decided:
    """What to write, and what it means.

    ``staying`` is the lowest id that stays in the queue, by partition. ``outage``: why the broker is out of reach.
    ``away``: destinations in trouble while the broker answers.
    """

    sent: list[Sent] = field(default_factory=list)
    sent_parked: list[SentParked] = field(default_factory=list)
    aside: list[Aside] = field(default_factory=list)
    holds: dict[Stream, Hold] = field(default_factory=dict)
    freed: list[Stream] = field(default_factory=list)
    staying: dict[int, int] = field(default_factory=dict)
    outage: str | None = None
    answered: bool = False
    unknown: int = 0
    skipped: int = 0
    away: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)


def decide(round_: Round, outcomes: Sequence[Outcome], streams: Streams, rules: Rules) -> Decided:
    """One outcome for each event that the round sent, in the same order."""
    found = Decided()
    if all(type(outcome) is Confirmed for outcome in outcomes):  # nearly always
        _all_confirmed(found, round_, outcomes)
    else:
        _Judge(found, round_, outcomes, streams, rules).go()
    found.answered = found.answered or bool(found.sent or found.sent_parked)
    return found


def _all_confirmed(found: Decided, round_: Round, outcomes: Sequence[Outcome]) -> None:
    if round_.draining is None:
        # As Sent(d.key, *o), in half the time: each event pays for it.
        found.sent = [_new_tuple(Sent, (d[0], *o)) for d, o in zip(round_.send, outcomes, strict=True)]
        return
    found.sent_parked = [
        SentParked(d.key, d.lane, o[0], o[1])  # type: ignore[misc,arg-type]
        for d, o in zip(round_.send, outcomes, strict=True)
    ]
    found.freed = [stream for stream, more in round_.draining.items() if not more and stream not in round_.given_up]


class _Judge:
    """The long way, event by event."""

    def __init__(
        self, found: Decided, round_: Round, outcomes: Sequence[Outcome], streams: Streams, rules: Rules
    ) -> None:
        self._found = found
        self._round = round_
        self._pairs = list(zip(round_.send, outcomes, strict=True))
        self._streams = streams
        self._rules = rules
        self._withheld: list[tuple[Delivery, Stream]] = []
        self._stopped: set[Stream] = set()  # one of it was not confirmed: whatever comes behind, waits
        self._unfinished: set[Stream] = set()  # holds under which something stays parked

    def go(self) -> None:
        self._found.taken = {d.message.destination for d, outcome in self._pairs if isinstance(outcome, Confirmed)}
        for delivery, outcome in self._pairs:
            if isinstance(outcome, Confirmed):
                self._confirmed(delivery, outcome)
                continue
            stream = self._streams.of(delivery)
            if isinstance(outcome, Withheld):
                self._withheld.append((delivery, stream))
            elif stream in self._stopped or self._hold_over(stream) is not None:  # its turn comes after the other's
                self._found.unknown += isinstance(outcome, Unknown)
                self._withheld.append((delivery, stream))
            else:
                self._failed(delivery, stream, outcome)
            self._stopped.add(stream)
        for delivery, stream in self._withheld:
            self._behind(delivery, stream)
        draining: Mapping[Stream, bool] = self._round.draining or {}
        self._found.freed = [
            stream
            for stream, more in draining.items()
            if not (more or stream in self._unfinished or stream in self._found.holds or stream in self._round.given_up)
        ]

    def _confirmed(self, delivery: Delivery, outcome: Confirmed) -> None:
        if self._round.is_drain:
            self._found.sent_parked.append(SentParked(delivery.key, delivery.lane, outcome.partition, outcome.offset))
        else:
            self._found.sent.append(Sent(delivery.key, outcome.partition, outcome.offset))

    def _failed(self, delivery: Delivery, stream: Stream, outcome: Outcome) -> None:
        assert not isinstance(outcome, Confirmed | Withheld)
        kind = classify(outcome)
        destination = delivery.message.destination
        found, rules = self._found, self._rules
        found.answered = found.answered or kind in ("permanent", "retryable")
        found.unknown += isinstance(outcome, Unknown)
        verdict = judge(kind, delivery.attempts, rules.retry, rules.chance(), pause=rules.pause(destination))
        if verdict.state == "BACK":
            found.outage = found.outage or outcome.reason
            self._withheld.append((delivery, stream))
            return
        reason = f"{kind}: {outcome.reason}"
        if kind == "destination-away":
            found.away.setdefault(destination, outcome.reason)
            # Where others of the destination got through, only this key's share of it is in trouble.
            whole = destination not in found.taken
            self._hold(delivery, stream, "away", verdict.due_in, reason, whole=whole)
            self._behind(delivery, stream)
            return
        assert verdict.state in ("RETRY", "DEAD")
        if isinstance(outcome, Rejected) and outcome.of_destination and verdict.state == "RETRY":
            found.away.setdefault(destination, outcome.reason)
            self._hold(delivery, stream, "away", verdict.due_in, reason, whole=True)
        elif self._round.is_drain and verdict.state == "RETRY":
            # Whatever is parked under a hold that drains is tried at once: only a hold of its own makes it wait.
            self._hold(delivery, stream, "backoff", verdict.due_in, reason)
        elif delivery.message.key is None:
            pass  # no other event has its key, and a hold for each such event would fill table and memory
        elif rules.on_failure == "hold":
            self._hold(delivery, stream, "backoff" if verdict.state == "RETRY" else "dead", verdict.due_in, reason)
        else:
            found.skipped += 1
        state: Literal["RETRY", "DEAD"] = "RETRY" if verdict.state == "RETRY" else "DEAD"
        found.aside.append(Aside(delivery.key, stream, state, verdict.due_in, verdict.attempts, reason))

    def _behind(self, delivery: Delivery, stream: Stream) -> None:
        """It waits: parked behind its hold, or where it is when its stream has none."""
        hold = self._hold_over(stream)
        if hold is None or self._round.is_drain:
            self._stay(delivery, stream)
        else:
            self._found.aside.append(Aside(delivery.key, stream, "HELD", None, delivery.attempts, behind(hold.head_id)))

    def _stay(self, delivery: Delivery, stream: Stream) -> None:
        if self._round.draining is not None:
            own = stream in self._round.draining
            self._unfinished.add(stream if own else stream._replace(lane=EVERY_LANE))
            return
        number, row, _ = delivery.key
        self._found.staying[number] = min(row, self._found.staying.get(number, row))

    def _hold_over(self, stream: Stream) -> Hold | None:
        """A hold that this round has brought."""
        holds = self._found.holds
        return holds.get(stream) or holds.get(stream._replace(lane=EVERY_LANE))

    def _hold(
        self,
        delivery: Delivery,
        stream: Stream,
        mode: Literal["backoff", "dead", "away"],
        due_in: float | None,
        reason: str,
        *,
        whole: bool = False,
    ) -> None:
        on = stream._replace(lane=EVERY_LANE) if whole else stream
        self._found.holds[on] = Hold(on, mode, delivery.key.id, due_in, delivery.message.destination, reason)
