"""The soak's schedule is repeatable by its seed, and does what the options ask for."""

from collections import Counter

import pytest

from pillarbox.errors import ConfigError
from pillarbox.lab.soak.disturbing import split
from pillarbox.lab.soak.options import SoakOptions
from pillarbox.lab.soak.schedule import POINTS, Disturb, Due, Freeze, Kill, Link, schedule


def kills(due: tuple[Due, ...]) -> list[Due]:
    return [one for one in due if isinstance(one.strike, Kill)]


def test_a_seed_makes_the_moments_and_targets_of_all_faults_repeatable() -> None:
    options = SoakOptions(seconds=120, kill_every=0.5, seed=11, disturb=("restart one", "restart two"))
    assert schedule(options) == schedule(options)


def test_another_seed_is_another_schedule() -> None:
    assert schedule(SoakOptions(seed=1)) != schedule(SoakOptions(seed=2))


def test_commands_leave_the_other_faults_of_a_seed_as_they_were() -> None:
    without = schedule(SoakOptions(seconds=120))
    with_ = schedule(SoakOptions(seconds=120, disturb=("restart",)))
    assert tuple(one for one in with_ if not isinstance(one.strike, Disturb)) == without


def test_half_a_second_over_ten_minutes_is_more_than_a_thousand_kills() -> None:
    assert 1150 <= len(kills(schedule(SoakOptions(seconds=600, kill_every=0.5)))) <= 1250


def test_all_faults_are_within_the_time_and_in_order() -> None:
    due = schedule(SoakOptions(seconds=90, kill_every=0.7, disturb=("restart",)))
    moments = [one.at for one in due]
    assert moments == sorted(moments)
    assert moments[0] > 0
    assert moments[-1] < 90


def test_every_role_is_killed_at_each_of_its_points_and_anywhere_else() -> None:
    options = SoakOptions(seconds=600, kill_every=0.5)
    hit = Counter((one.strike.role, one.strike.point) for one in kills(schedule(options)))  # type: ignore[union-attr]
    assert set(hit) == {(role, point) for role, points in POINTS.items() for point in (*points, None)}


def test_targets_exist() -> None:
    options = SoakOptions(seconds=300, kill_every=0.5, relays=1, consumers=4, writers=2)
    for one in schedule(options):
        if isinstance(one.strike, Kill | Freeze):
            assert one.strike.index < options.members[one.strike.role]


def test_some_processes_are_frozen_for_longer_than_a_lease() -> None:
    frozen = [one.strike.seconds for one in schedule(SoakOptions(seconds=300)) if isinstance(one.strike, Freeze)]
    assert min(frozen) < 3.0 < max(frozen)


def test_each_link_is_broken_in_each_way() -> None:
    links = [one.strike for one in schedule(SoakOptions(seconds=3600)) if isinstance(one.strike, Link)]
    assert len({(one.link, one.how) for one in links}) == 3 * 5


def test_commands_are_run_in_turn_and_as_often_as_asked() -> None:
    options = SoakOptions(seconds=100, disturb=("one", "two"), disturb_times=5)
    numbers = [one.strike.command for one in schedule(options) if isinstance(one.strike, Disturb)]
    assert numbers == [0, 1, 0, 1, 0]


def test_without_a_number_each_command_is_run_once_at_least_and_one_a_minute() -> None:
    assert SoakOptions(seconds=30, disturb=("one", "two")).disturbances == 2
    assert SoakOptions(seconds=600, disturb=("one", "two")).disturbances == 10
    assert SoakOptions(seconds=600).disturbances == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0},
        {"kill_every": 0.01},
        {"relays": 0},
        {"rate": 0},
        {"withdrawn": 1.0},
        {"drain": 0},
        {"seconds": 86_400, "rate": 1000},
        {"ownership": "table"},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        SoakOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["", "  ", "sh -c 'unfinished"])
def test_a_command_without_words_is_refused(command: str) -> None:
    with pytest.raises(ConfigError, match="--disturb"):
        split(command)
