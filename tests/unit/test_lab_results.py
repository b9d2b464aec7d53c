"""What a run found is kept as JSON and read back as it was, whatever servers said, and whatever ended the run."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox.errors import ConfigError
from pillarbox.lab import model, results
from pillarbox.lab.json_values import from_json, to_json
from pillarbox.lab.model import CellKey, CellResult, NotVisible, Run
from pillarbox.lab.options import LabOptions
from pillarbox.lab.running import command_of

from .lab_samples import RUN_FACTS, ghosts, sample_run

NUMBERS = st.integers() | st.floats(allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs, too
UNSEEN = st.builds(NotVisible, TEXT)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | UNSEEN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("is") | st.integers(), inner, max_size=2)
    ),
    max_leaves=8,
)
EVENTS = TEXT.map(model.EventId)
OUTCOMES = st.frozensets(st.sampled_from(model.Outcome))
TIMES = st.floats(allow_nan=False)
ROWS = st.builds(
    model.Row, TEXT, st.dictionaries(TEXT | st.just("is"), st.none() | TEXT, max_size=3), st.none() | TIMES
)
RECORDS = st.builds(model.Record, EVENTS, TEXT, st.dictionaries(TEXT, TEXT, max_size=2), st.none() | TIMES)
SEVERAL = st.lists(ROWS, max_size=2).map(tuple)
FACTS = st.builds(
    model.Facts,
    EVENTS,
    st.none() | ROWS,
    st.lists(RECORDS, max_size=2).map(tuple) | UNSEEN,
    st.none() | ROWS | UNSEEN,
    SEVERAL,
    st.dictionaries(TEXT, SEVERAL, max_size=2),
    st.dictionaries(TEXT, SEVERAL, max_size=2),
)
FAULTS = (
    st.builds(model.Kill, TEXT)
    | st.builds(model.Fail, TEXT)
    | st.builds(model.Freeze, TEXT)
    | st.builds(model.LoseAnswer, TEXT, st.sampled_from(("database", "broker")))
    | st.builds(model.CommitFails, TEXT)
)
PLANS = (
    st.builds(model.Planned, FAULTS, OUTCOMES, TEXT, OUTCOMES)
    | st.builds(model.Impossible, TEXT)
    | st.builds(model.NotRun, OUTCOMES, TEXT, TEXT)
)
CELLS = st.builds(
    CellResult,
    st.builds(CellKey, TEXT, TEXT),
    PLANS,
    st.lists(FACTS, max_size=2).map(tuple),
    st.lists(
        st.builds(
            model.Verdict,
            EVENTS,
            st.booleans(),
            st.none() | st.booleans(),
            OUTCOMES,
            st.dictionaries(TEXT, st.integers(), max_size=2),
            TEXT,
        ),
        max_size=2,
    ).map(tuple),
    st.lists(
        st.builds(
            model.Moment,
            TIMES,
            st.sampled_from(model.Lane),
            TEXT,
            st.none() | EVENTS,
            st.sampled_from(("lab", "database", "broker")),
            st.sampled_from(("step", "fault", "end")),
        ),
        max_size=2,
    ).map(tuple),
    st.lists(st.builds(model.Exit, TEXT, st.integers(), TEXT, TIMES), max_size=2).map(tuple),
    st.dictionaries(TEXT, ANYTHING, max_size=3),
    st.dictionaries(TEXT, ANYTHING, max_size=2),
    st.dictionaries(TEXT, ANYTHING, max_size=2),
    TEXT,
    TIMES,
    st.none() | TEXT,
)


@settings(max_examples=25, deadline=None)
@given(CELLS)
def test_a_cell_comes_back_exactly_as_it_was(cell: CellResult) -> None:
    text = results.as_text(to_json(cell))
    text.encode("utf-8")
    assert from_json(CellResult, json.loads(text)) == cell


@settings(max_examples=25, deadline=None)
@given(ANYTHING)
def test_any_value_of_the_evidence_comes_back_exactly_as_it_was(value: Any) -> None:
    cell = CellResult(CellKey("W1", "S1"), model.Impossible(""), settings={"value": value})
    assert from_json(CellResult, json.loads(results.as_text(to_json(cell)))) == cell


def test_a_run_comes_back_from_its_folder(tmp_path: Path) -> None:
    run = sample_run()
    results.prepare(tmp_path)
    results.save_run(tmp_path, run)
    assert results.load_run(tmp_path) == run


def test_a_run_that_was_killed_keeps_the_cells_that_had_ended(tmp_path: Path) -> None:
    results.prepare(tmp_path)
    results.save_run(tmp_path, Run(RUN_FACTS, (), complete=False))
    results.save_cell(tmp_path, ghosts())
    (tmp_path / "cells" / ".W2-S2.json.abc").write_text('{"format": 1, "ce')  # it was writing the next one
    found = results.load_run(tmp_path)
    assert found == Run(RUN_FACTS, (ghosts(),), complete=False)


def test_a_file_is_there_whole_or_as_it_was_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "report.html"
    results.write_whole(place, "before")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        results.write_whole(place, "after")
    assert place.read_text() == "before"
    assert list(tmp_path.iterdir()) == [place]


def test_a_folder_with_something_else_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="is not empty"):
        results.prepare(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_second_run_into_the_same_folder_takes_the_first_ones_place(tmp_path: Path) -> None:
    for run in (sample_run(), Run(RUN_FACTS, (ghosts(),))):
        results.prepare(tmp_path)
        results.save_run(tmp_path, run)
    assert results.load_run(tmp_path).cells == (ghosts(),)


@pytest.mark.parametrize("content", ['{"epochs": 3}', "[]", "{", '{"format": 1, "facts": "mine"}'])
def test_another_programs_run_is_not_taken_for_one_of_the_labs(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "stem.json").write_text("precious")
    with pytest.raises(ConfigError, match="no run of the lab"):
        results.prepare(tmp_path)
    assert (tmp_path / "cells" / "stem.json").read_text() == "precious"


def test_a_file_in_the_place_of_the_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        results.make(tmp_path / "file")


def test_a_password_with_a_space_is_masked_in_the_command() -> None:
    options = LabOptions("mysql+pymysql://app:very secret@db/", "amqp://app:also secret@mq/")
    command = command_of(options)
    assert "secret" not in command
    assert "mysql+pymysql://app:***@db/" in command


def test_a_folder_with_kafkas_experiments_takes_a_run_as_well(tmp_path: Path) -> None:
    (tmp_path / "kafka.json").write_text("[]")
    results.prepare(tmp_path)
    assert (tmp_path / "cells").is_dir()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "[" * 100_000, '{"format": 2}', '{"format": 1}', '{"format": 1, "facts": {}, "complete": true}'],
)
def test_what_is_no_run_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ConfigError):
        results.load_run(tmp_path)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run of the lab"):
        results.load_run(tmp_path)


def test_a_value_of_another_class_is_not_taken_for_the_right_one() -> None:
    data = to_json(ghosts())
    for wrong in ({"plan": {"is": "Kill", "point": "x"}}, {"key": None}, {"seconds": "3"}, {"facts": {}}):
        with pytest.raises(ValueError):
            from_json(CellResult, data | wrong)


def test_what_a_later_release_adds_does_not_hinder_reading() -> None:
    cell = replace(ghosts(), seconds=0.0)
    data = {name: value for name, value in to_json(cell).items() if name != "seconds"}
    assert from_json(CellResult, data | {"colour": "blue"}) == cell
