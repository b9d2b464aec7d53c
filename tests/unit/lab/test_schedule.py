"""The seed decides what happens in a cell, and nothing else does."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.errors import ConfigError
from pillarbox.lab.model import CellKey, Fail, Impossible, Planned
from pillarbox.lab.options import LabOptions
from pillarbox.lab.running import command_of, matrix
from pillarbox.lab.schedule import schedule, waves

KEY = CellKey("W3r", "S5-row")


def test_the_same_seed_gives_the_same_alarms_and_pauses() -> None:
    assert schedule(7, KEY, 20) == schedule(7, KEY, 20)
    assert schedule(7, KEY, 20) != schedule(8, KEY, 20)


def test_a_cell_that_runs_alone_is_what_it_was_among_others() -> None:
    assert schedule(7, KEY, 20)[:5] == schedule(7, KEY, 5)
    assert not {one.alarm.event_id for one in schedule(7, KEY, 20)} & {
        one.alarm.event_id for one in schedule(7, CellKey("W3r", "S5-partition"), 20)
    }


@given(seed=st.integers(), rounds=st.integers(1, 60), most=st.integers(1, 20))
def test_waves_have_every_event_once_and_in_its_order(seed: int, rounds: int, most: int) -> None:
    strokes = schedule(seed, KEY, rounds)
    groups = waves(seed, KEY, strokes, most)
    assert tuple(chain.from_iterable(groups)) == strokes
    assert all(1 <= len(group) <= most for group in groups)
    assert groups == waves(seed, KEY, strokes, most)


def test_the_matrix_has_each_cell_that_is_asked_for_and_no_other() -> None:
    assert list(matrix(LabOptions(windows=("W2",), strategies=("S2", "S3")))) == [
        CellKey("W2", "S2"),
        CellKey("W2", "S3"),
    ]
    everything = matrix(LabOptions())
    assert len(everything) == 8 * 7 + 2 * 4
    assert isinstance(everything[CellKey("W1", "S2")], Impossible)
    plan = everything[CellKey("W3", "S1")]
    assert isinstance(plan, Planned)
    assert isinstance(plan.fault, Fail)  # no network before the embedded log


def test_the_command_runs_the_cell_again_and_tells_no_password() -> None:
    options = LabOptions(
        database="mysql://app:s3cret@db/shop", broker="amqp://app:t0psecret@rabbit/%2F", rounds=5, seed=11
    )
    text = command_of(options, CellKey("W2", "S3"))
    assert text.startswith("pillarbox lab run --window W2 --strategy S3 ")
    assert text.endswith(" --rounds 5 --seed 11")
    assert "db/shop" in text
    assert "s3cret" not in text
    assert "t0psecret" not in text


@pytest.mark.parametrize("wrong", [{"windows": ("W9",)}, {"strategies": ("S9",)}, {"rounds": 0}, {"parallel": 0}])
def test_what_cannot_be_run_is_refused_at_once(wrong: dict) -> None:
    with pytest.raises(ConfigError):
        LabOptions(**wrong)
