"""The soak's report says what was found: as one sentence, as a page, as JSON, and in a terminal."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import pillarbox.lab.soak
from pillarbox.cli.app import app
from pillarbox.lab.model import EventId, Facts, NotVisible, Row, Verdict
from pillarbox.lab.soak.accounts import Books, Finding, Told, balance
from pillarbox.lab.soak.gauge import Sample
from pillarbox.lab.soak.happened import Happened
from pillarbox.lab.soak.report import as_json, page, terminal, verdict
from pillarbox.lab.soak.result import Evidence, SoakResult

ACCOUNTS = balance(Books({"a": "k"}, {"a": 1}, {}, ["a"], [Told("a", "k", 1, "t[0]@0")] * 2, ["a"], ["a"]))

GOOD = SoakResult(
    command="pillarbox lab soak --minutes 1",
    began=1_790_000_000.0,
    seconds=75.0,
    options={"drain": 180.0, "broker": None},
    versions={"Python": "3.11.7"},
    servers={"broker": {"version": NotVisible("it does not say")}},
    machine={"cores": 2, "load_before": (1.0, 2.0, 3.0)},
    happened=(
        Happened(1_790_000_001.0, "kill", "relay-0", "relay.after-confirm"),
        Happened(1_790_000_002.0, "kill", "relay-2", "anywhere"),
        Happened(1_790_000_003.0, "freeze", "consumer-1", "anywhere", 2.5),
        Happened(1_790_000_004.0, "link", "shop", "lose answers", 1.0),
        Happened(1_790_000_005.0, "disturb", "restart it", "status 0", 3.0),
        Happened(1_790_000_006.0, "stage", "soak", "the faults end"),
    ),
    samples=(Sample(1_790_000_000.0, 3, 10, 5), Sample(1_790_000_010.0, 1_234, 2_000, 700)),
    accounts=ACCOUNTS,
    drained=True,
    drain_seconds=4.25,
    links_absent={"broker": "a file, no network"},
)

FINDING = Finding("loss", "b", "The business row is committed, the broker never got it, nothing waits.")
BAD = replace(
    GOOD,
    accounts=replace(ACCOUNTS, findings=(FINDING,)),
    evidence=(
        Evidence(
            FINDING,
            Facts(EventId("b"), Row("lab_alarm", {"device": "d1"}), records=()),
            Verdict(EventId("b"), database=True, broker=False, outcomes=frozenset(), sentence="Nobody will be told."),
        ),
    ),
)


def printed(result: SoakResult) -> str:
    console = Console(file=StringIO(), width=160)
    console.print(terminal(result))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_soak_passes_when_everything_was_accounted_for_and_drained() -> None:
    assert GOOD.passed
    assert verdict(GOOD) == "2 kills, 1 events: none lost, none invented, none applied twice."


def test_a_finding_fails_it_and_its_chain_is_shown() -> None:
    assert not BAD.passed
    assert "a promise was broken" in verdict(BAD)
    for text in (page(BAD), printed(BAD)):
        assert "loss: The business row is committed" in text
        assert "Nobody will be told." in text
    assert '"device": "d1"' in page(BAD)


def test_what_was_not_drained_in_time_fails_it_even_without_a_finding() -> None:
    late = replace(GOOD, drained=False)
    assert not late.passed
    assert "within 180 s" in verdict(late)


def test_the_page_counts_kills_by_role_and_point_and_all_faults() -> None:
    text = page(GOOD)
    assert "| relay | `relay.after-confirm` | 1 |" in text
    assert "| freeze consumer | 1 |" in text
    assert "| link shop: lose answers | 1 |" in text
    assert "| disturb restart it: status 0 | 1 |" in text
    assert "The link to broker was not broken: a file, no network." in text
    assert "| peak backlog | 1,234 |" in text
    assert "| broker version | not visible: it does not say |" in text


def test_the_page_draws_kills_and_backlog_over_time() -> None:
    lines = [line for line in page(GOOD).splitlines() if line.startswith(("kills ", "backlog "))]
    assert len(lines) == 2
    assert "█" in lines[0]
    assert "at most 1,234" in lines[1]


def test_the_json_is_json_and_has_the_figures_and_the_timeline() -> None:
    data = json.loads(json.dumps(as_json(BAD)))
    assert data["passed"] is False
    assert data["figures"]["kills"] == 2
    assert data["figures"]["duplicates on the wire"] == 1
    assert data["kills_by_point"] == {"relay anywhere": 1, "relay relay.after-confirm": 1}
    assert len(data["happened"]) == len(BAD.happened)


@pytest.mark.parametrize(("result", "code"), [(GOOD, 0), (BAD, 1)], ids=["kept", "broken"])
def test_the_command_ends_with_one_when_a_promise_was_broken(
    result: SoakResult, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pillarbox.lab.soak, "run_soak", lambda *_args, **_names: result)
    done = CliRunner().invoke(app, ["lab", "soak", "--out", str(tmp_path)])
    assert done.exit_code == code
    assert verdict(result) in " ".join(done.output.split())
    assert (tmp_path / "soak.json").exists()


@pytest.mark.parametrize("time", ["soon", "-2s", "2 hours"])
def test_what_is_no_time_between_kills_is_refused(time: str) -> None:
    done = CliRunner().invoke(app, ["lab", "soak", f"--kill-every={time}"])
    assert done.exit_code == 2
    assert "--kill-every" in done.output
