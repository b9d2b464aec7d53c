"""The whole matrix on SQLite and the embedded log, judged from the files: what the lab claims is what comes out."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.lab.model import CellKey, CellResult, Kill, Outcome, Planned, Run
from pillarbox.lab.options import LabOptions
from pillarbox.lab.running import run_lab

ROUNDS = 3

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module")
def run() -> Run:
    return run_lab(LabOptions(rounds=ROUNDS, parallel=3))


def cell(run: Run, window: str, strategy: str) -> CellResult:
    return next(one for one in run.cells if one.key == CellKey(window, strategy))


def planned(run: Run) -> list[CellResult]:
    return [one for one in run.cells if isinstance(one.plan, Planned)]


def test_every_cell_runs_to_its_end_and_shows_what_is_expected(run: Run) -> None:
    assert run.complete
    assert {str(one.key): one.trouble for one in planned(run) if one.trouble} == {}
    assert {str(one.key): one.surprises for one in planned(run) if one.surprises} == {}
    assert all(len(one.verdicts) == ROUNDS for one in planned(run))


@pytest.mark.parametrize(
    ("window", "strategy", "outcome"),
    [
        ("W1", "S1", Outcome.GHOST),
        ("B1", "S1", Outcome.GHOST),
        ("W3", "S1", Outcome.GHOST),
        ("W2", "S2", Outcome.LOSS),
        ("W2", "S3", Outcome.LOSS),
        ("W3", "S3", Outcome.DUPLICATE),
        ("W3r", "S5-row", Outcome.DUPLICATE),
        ("W3r", "S5-partition", Outcome.DUPLICATE),
        ("W4", "C0", Outcome.TWICE),
        ("W4r", "C1", Outcome.TWICE),
        ("W4", "CA", Outcome.SKIPPED),
    ],
)
def test_the_fault_shows_in_every_event(run: Run, window: str, strategy: str, outcome: Outcome) -> None:
    assert cell(run, window, strategy).count(outcome) == ROUNDS


def test_the_outbox_loses_nothing_tells_of_nothing_that_was_not_and_applies_once(run: Run) -> None:
    for one in planned(run):
        if one.key.strategy.startswith("S5"):
            assert not one.count(Outcome.LOSS), one.key
            assert not one.count(Outcome.GHOST), one.key
            for verdict in one.verdicts:
                assert verdict.applied["C2"] == (1 if verdict.database else 0), (one.key, verdict)


def test_the_inbox_applies_once_whatever_happens(run: Run) -> None:
    for window in ("W4", "W4r"):
        assert [dict(one.applied) for one in cell(run, window, "C2").verdicts] == [{"C2": 1}] * ROUNDS


def test_who_is_killed_was_killed_by_signal_nine(run: Run) -> None:
    for one in planned(run):
        if isinstance(one.plan, Planned) and isinstance(one.plan.fault, Kill):
            assert any(exit_.how == "signal 9" for exit_ in one.exits), one.key


def test_the_timeline_has_the_fault_between_its_two_steps(run: Run) -> None:
    one = cell(run, "W2", "S2")
    event_id = one.facts[0].event_id
    words = [moment.what for moment in one.timeline if moment.event_id == event_id and moment.source == "lab"]
    committed = next(at for at, what in enumerate(words) if what.startswith("COMMIT has returned"))
    assert words[committed + 1].startswith("SIGKILL")


def test_a_cell_has_its_evidence_and_the_command_that_runs_it_again(run: Run) -> None:
    one = cell(run, "W2", "S2")
    assert one.command == f"pillarbox lab run --window W2 --strategy S2 --rounds {ROUNDS} --seed 7"
    assert one.settings["fault_point"] == "s2.committed"
    assert one.settings["session.isolation_level"]
    assert "C0" in one.after["committed"]
    assert run.facts.versions["Python"]


def test_the_same_seed_strikes_the_same_events_in_the_same_order() -> None:
    asked = LabOptions(windows=("W1",), strategies=("S1",), rounds=2, seed=21)
    first, second = run_lab(asked).cells[0], run_lab(asked).cells[0]
    assert [one.event_id for one in first.facts] == [one.event_id for one in second.facts]
    assert [one.event_id for one in first.timeline if one.kind == "fault"] == [
        one.event_id for one in second.timeline if one.kind == "fault"
    ]


SCRIPT = """
import json
from pillarbox.lab.options import LabOptions
from pillarbox.lab.running import run_lab, Progress
def show(one):
    if not isinstance(one, Progress) and one.ran:
        print("cell", flush=True)
run = run_lab(LabOptions(windows=("W2", "W3r"), strategies=("S2", "S5-row"), rounds=10, parallel=1), show)
print(json.dumps([run.complete, [str(one.key) for one in run.cells if one.ran]]), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_was_finished_and_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    lab = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    assert lab.stdout is not None
    assert lab.stdout.readline() == "cell\n"
    lab.send_signal(number)
    complete, keys = json.loads(lab.stdout.readlines()[-1])
    assert lab.wait(30) == 0
    lab.stdout.close()
    assert not complete
    assert "W2-S2" in keys
    assert "W3r-S5-row" not in keys
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [path for path in (tmp_path / "state").rglob("*") if path.is_file()] == []
