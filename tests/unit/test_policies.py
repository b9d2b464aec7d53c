"""Backoff, failure classes and the breaker: pure decisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.errors import ConfigError
from pillarbox.policy.breaker import Breaker
from pillarbox.policy.retry import RetryPolicy
from pillarbox.policy.verdict import judge


def test_backoff_doubles_up_to_its_cap() -> None:
    policy = RetryPolicy(jitter=False)
    assert [policy.delay(n, 0) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_spreads_a_delay_between_nothing_and_the_full_backoff(attempts: int, chance: float) -> None:
    assert 0 <= RetryPolicy().delay(attempts, chance) <= RetryPolicy(jitter=False).delay(attempts, 0)


def test_a_policy_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(base=0)
    with pytest.raises(ConfigError):
        RetryPolicy(max_attempts=0)


def test_a_permanent_refusal_is_dead_at_once() -> None:
    assert judge("permanent", 0, RetryPolicy(), 0.5).state == "DEAD"


def test_a_retryable_refusal_is_dead_only_after_the_attempt_limit() -> None:
    policy = RetryPolicy(max_attempts=3)
    assert [judge("retryable", n, policy, 0.5).state for n in range(3)] == ["RETRY", "RETRY", "DEAD"]


@pytest.mark.parametrize("kind", ["unavailable", "unknown-in-outage"])
def test_an_outage_is_never_charged_to_an_event(kind: str) -> None:
    """C059: a broker that is down must not burn attempts."""
    verdict = judge(kind, 9, RetryPolicy(max_attempts=10), 0.5)  # type: ignore[arg-type]
    assert (verdict.state, verdict.attempts, verdict.outage) == ("BACK", 9, True)


def test_no_answer_from_a_healthy_destination_is_charged() -> None:
    assert judge("unknown", 0, RetryPolicy(), 0.5)[:2] == ("RETRY", 1)


def test_the_breaker_lets_one_probe_through_per_interval() -> None:
    breaker = Breaker(interval=2)
    assert breaker.permit(0) == "full"
    assert breaker.trouble(10) is True
    assert (breaker.permit(11.9), breaker.wait_for(11)) == ("wait", 1)
    assert breaker.permit(12) == "probe"
    assert breaker.trouble(12) is False  # the probe failed: still the same outage
    assert breaker.permit(13) == "wait"
    assert breaker.success() is True
    assert breaker.permit(13) == "full"


def test_the_breaker_knows_how_long_an_outage_lasts_and_forgets_it_with_its_end() -> None:
    breaker = Breaker(interval=2)
    assert breaker.away_for(5) == 0
    breaker.trouble(10)
    breaker.trouble(12)
    assert breaker.away_for(70) == 60
    breaker.success()
    assert breaker.away_for(71) == 0


def test_an_event_without_answer_has_a_limit_of_its_own() -> None:
    policy = RetryPolicy(max_attempts=2, max_unknown=4)
    assert judge("unknown", 1, policy, 0.5).state == "RETRY"
    assert judge("unknown", 3, policy, 0.5).state == "DEAD"
    assert judge("retryable", 1, policy, 0.5).state == "DEAD"
