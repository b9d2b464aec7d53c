"""How long things stay, and how gently they go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.errors import ConfigError
from pillarbox.policy.retention import Keep, Pace, stretches, within_bytes


def test_a_batch_is_followed_by_a_rest_as_long_as_its_work() -> None:
    assert Pace(share=0.5).after(100, seconds=0.2) == pytest.approx(0.2)
    assert Pace(share=0.25).after(100, seconds=0.2) == pytest.approx(0.6)
    assert Pace(share=1.0).after(100, seconds=0.2) == 0


def test_the_rate_counts_the_time_of_the_work() -> None:
    assert Pace(rate=100).after(50, seconds=0.1) == pytest.approx(0.4)


def calm(pace: Pace, batches: int = 10) -> None:
    for _ in range(batches):
        pace.after(pace.batch, seconds=0.05)


def test_a_batch_that_takes_far_longer_than_usual_means_a_busy_database() -> None:
    pace = Pace(batch=400)
    calm(pace)
    assert pace.after(400, seconds=0.1) == pytest.approx(0.1)  # twice as long is chance
    assert not pace.backing_off
    rests = [pace.after(pace.batch, seconds=0.5) for _ in range(3)]
    assert rests == [0.5, 0.5, 1.0]
    assert (pace.backing_off, pace.batch) == (True, 50)


def test_when_the_database_is_calm_again_batch_and_pace_come_back() -> None:
    pace = Pace(batch=400)
    calm(pace)
    for _ in range(4):
        pace.after(pace.batch, seconds=0.5)
    for _ in range(8):
        pace.after(pace.batch, seconds=0.01)
    assert (pace.backing_off, pace.batch) == (False, 400)


def test_a_slowness_that_stays_becomes_the_usual() -> None:
    pace = Pace(batch=400)
    calm(pace, 31)
    for _ in range(40):
        pace.after(pace.batch, seconds=0.5)
    assert not pace.backing_off


def test_a_small_batch_is_not_taken_for_a_slow_one() -> None:
    pace = Pace(batch=500)
    calm(pace)
    pace.after(3, seconds=0.02)
    assert not pace.backing_off


def test_conflicts_lengthen_the_rest_to_half_a_minute_at_most() -> None:
    pace = Pace()
    assert [pace.after_conflict() for _ in range(9)] == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert pace.batch == 10


def test_a_batch_below_the_smallest_stays_what_was_asked_for() -> None:
    pace = Pace(batch=3)
    pace.after_conflict()
    assert pace.batch == 3


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"batch": 10_001}, {"rate": -1.0}, {"share": 0.0}, {"share": 1.1}])
def test_a_pace_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Pace(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [(-1.0, None), (1.0, -1.0)])
def test_a_keep_time_below_zero_is_refused(wrong: tuple[float, float | None]) -> None:
    with pytest.raises(ConfigError):
        Keep(*wrong)


@given(st.sets(st.integers(1, 2_000)), st.integers(1, 50))
def test_stretches_cover_all_ids_and_few_others(ids: set[int], gap: int) -> None:
    ranges = stretches(sorted(ids), gap)
    covered = [number for low, high in ranges for number in range(low, high + 1)]
    assert ids <= set(covered)
    assert len(covered) == len(set(covered)) <= len(ids) * gap
    assert all(low in ids and high in ids for low, high in ranges)


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(0, 300))
def test_a_batch_stays_within_its_bytes_unless_it_is_one_event(sizes: list[int], limit: int) -> None:
    count = within_bytes(sizes, limit)
    assert count >= min(1, len(sizes))
    assert sum(sizes[:count]) <= limit or count == 1
    assert count == len(sizes) or sum(sizes[: count + 1]) > limit
