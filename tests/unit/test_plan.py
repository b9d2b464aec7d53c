"""From outcomes to a settlement: each row decided exactly once, each class charged as promised."""

from hypothesis import given
from hypothesis import strategies as st

from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import (
    Claim,
    Confirmed,
    Delivery,
    OrphanWork,
    Outcome,
    Rejected,
    Unavailable,
    Unknown,
    WorkKey,
)
from pillarbox.relay.plan import Plan, is_charged, plan
from tests.unit.deliveries import delivery

OUTCOMES = [
    Confirmed(3, 99),
    Rejected("too large", permanent=True),
    Rejected("nack", permanent=False),
    Unavailable("no broker"),
    Unknown("no answer", destination_healthy=True),
    Unknown("no answer", destination_healthy=False),
    Unavailable("no leader", broker_answers=True),
    Unknown("no answer, no leader", destination_healthy=False, broker_answers=True),
]


def decide(outcomes: list[Outcome], *, attempts: int = 0, orphans: tuple[OrphanWork, ...] = ()) -> Plan:
    """The plan for one delivery per outcome, numbered from 0."""
    published = [delivery(n, attempts=attempts) for n in range(len(outcomes))]
    return plan(Claim(7, published, orphans), published, outcomes, RetryPolicy(), lambda: 0.5)


@given(st.lists(st.sampled_from(OUTCOMES), max_size=30))
def test_every_event_of_a_batch_is_settled_exactly_once(outcomes: list[Outcome]) -> None:
    """C004: an outcome belongs to one event; neighbours are not judged by it."""
    settlement = decide(outcomes).settlement
    keys = [*(s.key for s in settlement.sent), *(p.key for p in settlement.parked), *settlement.given_back]
    assert sorted(keys) == [WorkKey(0, n, 0) for n in range(len(outcomes))]
    assert len(settlement.sent) == sum(isinstance(o, Confirmed) for o in outcomes)


def test_a_confirmed_event_keeps_its_place_in_the_broker() -> None:
    (sent,) = decide([Confirmed(3, 99)]).settlement.sent
    assert (sent.partition, sent.offset) == (3, 99)


def test_a_permanent_refusal_is_dead_with_its_reason() -> None:
    (dead,) = decide([Rejected("too large", permanent=True)]).settlement.parked
    assert (dead.state, dead.due_in, dead.error) == ("DEAD", None, "permanent: too large")


def test_a_retryable_refusal_comes_back_after_its_backoff() -> None:
    (parked,) = decide([Rejected("nack", permanent=False)], attempts=2).settlement.parked
    assert (parked.state, parked.attempts, parked.due_in) == ("RETRY", 3, 2.0)


def test_an_outage_of_the_destination_alone_parks_the_event_uncharged() -> None:
    decided = decide([Unavailable("no leader", broker_answers=True), Confirmed()], attempts=4)
    (parked,) = decided.settlement.parked
    assert (parked.state, parked.attempts, parked.error) == ("RETRY", 4, "destination-away: no leader")
    assert not is_charged(parked)
    assert (decided.outage, list(decided.away.values())) == (None, ["no leader"])


def test_an_outage_opens_the_breaker_and_gives_the_event_back() -> None:
    """C059"""
    decided = decide([Unavailable("no broker"), Unknown("cut", destination_healthy=False)])
    assert decided.outage == "no broker"
    assert len(decided.settlement.given_back) == 2
    assert not decided.answered


def test_no_answer_is_counted_as_its_own_case() -> None:
    decided = decide([Unknown("late", destination_healthy=True), Confirmed()])
    assert (decided.unknown, decided.outage, decided.answered) == (1, None, True)


def test_work_without_its_event_is_dead_and_never_skipped() -> None:
    (dead,) = decide([], orphans=(OrphanWork(WorkKey(1, 5, 0), 9, 0, 1),)).settlement.parked
    assert dead.state == "DEAD"
    assert dead.error.startswith("orphan:")


def test_a_delivery_is_never_given_two_outcomes() -> None:
    one: list[Delivery] = [delivery(1)]
    try:
        plan(Claim(1, one), one, [Confirmed(), Confirmed()], RetryPolicy(), lambda: 0.0)
    except ValueError:
        return
    raise AssertionError("two outcomes for one event were accepted")
