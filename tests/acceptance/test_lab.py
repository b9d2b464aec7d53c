"""The fault lab as a stranger runs it: real cells, Ctrl-C in the middle, and what is refused before it begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pillarbox.lab import results
from pillarbox.lab.model import Run

from ..unit.lab_samples import RUN_FACTS, ghosts, sample_run
from .processes import Cli, Inline


def test_a_run_shows_a_loss_without_an_outbox_and_none_with_it(cli: Cli) -> None:
    done = cli.run(
        *("lab", "run", "--window", "W2", "--strategy", "S2", "--strategy", "s5-row"),
        *("--rounds", "2", "--out", "kept", "--json"),
    )
    assert done.code == 0, done.err
    cells = {one["strategy"]: one for one in done.json["cells"]}
    assert cells["S2"]["seen"] == {"loss": 2}
    assert cells["S5-row"]["seen"] == {"nothing": 2}
    assert done.json["complete"] is True
    assert {Path(one).name for one in done.json["files"]} == {
        "report.html",
        "report.zh.html",
        "report.md",
        "report.json",
    }
    assert "W2-S2: 2 losses" in done.err  # progress, as lines where there is no terminal
    page = (cli.folder / "kept" / "report.html").read_text(encoding="utf-8")
    assert "Reality matched what is expected, in all 2 cells that ran." in page
    whole = json.loads((cli.folder / "kept" / "report.json").read_text(encoding="utf-8"))
    assert len(whole["cells"]) == 2
    kept = results.load_run(cli.folder / "kept")
    assert [str(one.key) for one in kept.cells] == ["W2-S2", "W2-S5-row"]


def test_ctrl_c_keeps_what_was_done_and_reports_it(cli: Cli) -> None:
    with cli.started("lab", "run", "--window", "B1", "--rounds", "12", "--parallel", "1", "--out", "kept") as running:
        running.wait_for("B1-S1: ")
        running.interrupt()
        done = running.ended(30)
    assert done.code == 130
    assert "Traceback" not in done.err
    assert "This run was ended early." in done.out
    kept = results.load_run(cli.folder / "kept")
    assert kept.complete is False
    assert "B1-S1" in [str(one.key) for one in kept.cells if one.ran]
    assert "ended early" in (cli.folder / "kept" / "report.html").read_text(encoding="utf-8")


# Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--window", "W9"), 3, ("PB-001", "W9", "W1, W2")),
        (("--strategy", "S9"), 3, ("PB-001", "S9", "S1, S2")),
        (("--window", "W4", "--strategy", "S1"), 3, ("PB-001", "There is no such cell")),
        (("--rounds", "0"), 2, ("--rounds",)),
        (("--rounds", "many"), 2, ("--rounds",)),
        (("--parallel", "9"), 2, ("--parallel",)),
        (("--database", "not a url"), 3, ("PB-002",)),
        (("--database", "sqlite:///mine.db"), 3, ("PB-002", "its own SQLite files")),
        (("--database", "mysql+pymysql://lab:s3cret@127.0.0.1:1/x"), 4, ("PB-004",)),
        (("--broker", "carrier-pigeon://u:s3cret@loft"), 3, ("PB-002", "no broker for carrier-pigeon://u:***@loft")),
        (("--broker", "embedded:mine.db"), 3, ("PB-002", "its own embedded log")),
        (("--broker", "amqp://guest:s3cret@127.0.0.1:1/"), 4, ("PB-005",)),
        (("--out", "thesis"), 3, ("PB-001", "is not empty")),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_made(
    inline: Inline, options: tuple[str, ...], code: int, said: tuple[str, ...]
) -> None:
    (inline.folder / "thesis").mkdir()
    (inline.folder / "thesis" / "thesis.tex").write_text("years of work")
    done = inline.run("lab", "run", *options)
    assert done.code == code, done.err
    done.says(*said)
    assert "s3cret" not in done.err
    assert [one.name for one in inline.folder.iterdir()] == ["thesis"]


def test_a_refusal_is_one_json_object_when_json_is_wanted(inline: Inline) -> None:
    done = inline.run("lab", "list", "--window", "W9", "--json")
    assert json.loads(done.err)["code"] == "PB-001"


# Looking ----------------------------------------------------------------------------------------------------------


def test_the_list_says_what_runs_what_is_expected_and_what_does_not_run_and_why(inline: Inline) -> None:
    said = inline.run("lab", "list").out
    assert "W2 committed, then dead" in said
    cells = {(one["window"], one["strategy"]): one for one in inline.run("lab", "list", "--json").json["cells"]}
    assert cells["W1", "S1"]["state"] == "runs"
    assert cells["W1", "S1"]["expected"] == ["ghost"]
    assert cells["W3r", "S1"]["state"] == "impossible"
    assert cells["W2", "S6"]["state"] == "not run"
    assert cells["W2", "S6"]["reason"]
    assert ("W4", "S1") not in cells


def test_the_list_for_kafka_has_the_strategy_that_only_kafka_has(inline: Inline) -> None:
    done = inline.run(
        "lab", "list", "--broker", "kafka://away:9092", "--database", "mysql://away/x", "--strategy", "S4", "--json"
    )
    assert {one["state"] for one in done.json["cells"] if one["window"] in ("B2", "B4")} == {"runs"}


def test_the_report_of_a_killed_run_is_written_from_what_it_kept(inline: Inline) -> None:
    folder = inline.folder / "kept"
    results.save_run(folder, Run(RUN_FACTS, (), complete=False))
    results.save_cell(folder, ghosts())
    done = inline.run("lab", "report", "kept")
    assert done.code == 0, done.err
    assert "20 ghosts" in done.out
    assert "ended early" in done.out
    assert (folder / "report.zh.html").is_file()


def test_surprises_have_a_line_each(inline: Inline) -> None:
    results.save_run(inline.folder / "kept", sample_run())
    said = inline.run("lab", "report", "kept").out
    assert "unexpected: W2-S5-row: not expected, and seen: loss (1 of 20 events)" in said
    assert "not finished: W4-C1: BrokerUnavailable" in said


def test_a_folder_without_a_run_has_no_report(inline: Inline) -> None:
    inline.run("lab", "report", ".").says("PB-001", "no run of the lab")
