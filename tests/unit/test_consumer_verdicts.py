"""Classes of errors and policies, as they are written down."""

from collections.abc import Mapping
from typing import Any

import pytest

from pillarbox import Consumer, RetryPolicy
from pillarbox.consume.plan import Discard, RetryLater, SetAside, after_failure
from pillarbox.consume.verdicts import verdict_on
from pillarbox.errors import BadConsumer, EffectInDoubt, EffectNotDone, EffectPending, EffectRefused

ONCE = RetryPolicy(base=1, cap=1, max_attempts=2, jitter=False)


def test_the_nearest_named_ancestor_decides_and_nobody_named_means_retry() -> None:
    assert verdict_on(FileNotFoundError(), {OSError: "drop", Exception: "give up"}) == "drop"
    assert verdict_on(ValueError(), {OSError: "drop", Exception: "give up"}) == "give up"
    assert verdict_on(ValueError(), {OSError: "drop"}) == "retry"


def test_effects_that_no_attempt_makes_any_better_are_given_up_unless_the_user_says_otherwise() -> None:
    silent: dict[type[Exception], Any] = {ValueError: "drop"}
    assert verdict_on(EffectInDoubt("?"), silent) == verdict_on(EffectRefused("no"), silent) == "give up"
    assert verdict_on(EffectPending("?"), silent) == verdict_on(EffectNotDone("?"), silent) == "retry"
    assert verdict_on(EffectRefused("no"), {EffectRefused: "drop"}) == "drop"
    assert verdict_on(EffectPending("?"), {EffectInDoubt: "give up"}) == "give up"
    assert verdict_on(EffectInDoubt("?"), {Exception: "retry"}) == "retry"


def test_an_effect_that_will_be_known_is_looked_at_when_it_is() -> None:
    assert after_failure(EffectPending("?", seconds=40.0), 1, ONCE, 0.5) == RetryLater(40.0, 1)
    assert after_failure(EffectPending("?"), 1, ONCE, 0.5) == RetryLater(1.0, 1)


def test_what_follows_from_a_verdict() -> None:
    error = ValueError("x")
    assert after_failure(error, 1, ONCE, 0.5, verdict="retry") == RetryLater(1.0, 1)
    assert after_failure(error, 1, ONCE, 0.5, verdict="give up") == SetAside("ValueError: x", 1)
    assert after_failure(error, 1, ONCE, 0.5, verdict="drop") == Discard("ValueError: x")
    assert after_failure(error, 1, ONCE, 0.5, verdict="drop", final=True) == SetAside("ValueError: x", 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"on_error": {ValueError: "ignore"}}, "'ignore' about ValueError"),
        ({"on_error": {KeyboardInterrupt: "drop"}}, "no class of exceptions"),
        ({"on_error": {"ValueError": "drop"}}, "no class of exceptions"),
        ({"foreign": "ignore"}, "foreign is 'ignore'"),
        ({"unknown": "drop"}, "unknown is 'drop'"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"ahead": 0}, "ahead must be at least 1"),
        ({"drain": 0}, "drain must be > 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_the_consumer_is_made(changes: Mapping[str, Any], says: str) -> None:
    with pytest.raises(BadConsumer, match=says):
        Consumer("stock", database="sqlite://", broker="embedded:///nowhere", sources=["orders"], **changes)
