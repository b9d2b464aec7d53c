"""Processes of the lab are real: forked, talked to, frozen, killed, and gone with the lab."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.errors import LabError
from pillarbox.lab.grounds import broker_ground, database_ground
from pillarbox.lab.grounds.folders import remove_left_folders
from pillarbox.lab.ports import BrokerGround, DatabaseGround
from pillarbox.lab.process import Process
from pillarbox.lab.processes import Crew


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew() as crew:
        yield crew


@pytest.fixture(scope="module")
def grounds() -> Iterator[tuple[DatabaseGround, BrokerGround]]:
    with database_ground(None, "processes") as database, broker_ground(None, "processes") as broker:
        yield database, broker


@pytest.fixture
def application(crew: Crew, grounds: tuple[DatabaseGround, BrokerGround], tmp_path: Path) -> Iterator[Process]:
    database, broker = grounds
    task = {
        "strategy": "S2",
        "shop_url": database.shop_url,
        "broker_url": broker.url,
        "destination": list(broker.destination),
        "transactional_id": "",
    }
    process = crew.start("application", task, waits_at={"s2.committed"}, log=tmp_path / "log")
    yield process
    if process.exit is None:
        process.kill()


ALARM = {"device": "sensor-1", "celsius": 90}


def alarm(number: int) -> dict[str, object]:
    return {"event_id": f"00000000-0000-4000-8000-{os.getpid():06d}{number:06d}", **ALARM}


def test_a_process_waits_at_its_point_and_is_killed_there(application: Process) -> None:
    application.go(application.wait_for("application.ready"), alarm=alarm(1))
    reached = application.wait_for("s2.committed")
    assert reached.event_id == alarm(1)["event_id"]
    assert application.kill().how == "signal 9"
    assert application.count("s2.acknowledged") == 0
    assert application.next(5) is None


def test_an_error_raised_at_a_point_ends_the_request_and_not_the_process(application: Process) -> None:
    application.go(application.wait_for("application.ready"), alarm=alarm(2))
    application.fail(application.wait_for("s2.committed"))
    application.wait_for("application.failed")
    application.go(application.wait_for("application.ready"), alarm=None)
    assert application.wait().how == "status 0"


def test_a_frozen_process_goes_on_where_it_was(application: Process) -> None:
    application.go(application.wait_for("application.ready"), alarm=alarm(3))
    reached = application.wait_for("s2.committed")
    application.freeze()
    application.go(reached)
    assert application.next(0.3) is None
    application.thaw()
    application.wait_for("s2.acknowledged")


def test_a_process_that_is_asked_to_end_ends_in_good_order(application: Process) -> None:
    application.wait_for("application.ready")
    assert application.stop().how == "status 0"


def test_waiting_for_a_point_that_does_not_come_says_which(application: Process) -> None:
    with pytest.raises(LabError, match=r"did not reach no\.such-point"):
        application.wait_for("no.such-point", timeout=0.3)


def test_what_broke_a_process_is_in_its_exit(crew: Crew, tmp_path: Path) -> None:
    process = crew.start("application", {"strategy": "S9"}, log=tmp_path / "log")
    assert process.wait().how.startswith("exception KeyError")
    assert "Traceback" in (tmp_path / "log").read_text()


def test_no_process_outlives_the_lab(tmp_path: Path) -> None:
    """Even SIGKILL of the lab itself: nobody is left who could still send."""
    script = (
        "import sys, time; from pathlib import Path; from pillarbox.lab.processes import Crew\n"
        "crew = Crew(); task = {'strategy': 'S2', 'shop_url': 'sqlite:///' + sys.argv[2] + '.db',"
        " 'broker_url': 'embedded:' + sys.argv[2],"
        " 'destination': ['t', None], 'transactional_id': ''}\n"
        "q = crew.start('application', task, log=Path(sys.argv[1]))\n"
        "q.wait_for('application.ready'); print(q.pid, flush=True); time.sleep(60)"
    )
    lab = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log"), str(tmp_path / "events.log")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert lab.stdout is not None
    pid = int(lab.stdout.readline())
    lab.kill()
    lab.wait(10)
    lab.stdout.close()
    deadline = time.monotonic() + 10
    while _lives(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_next_run_removes_the_folder_of_a_crew_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = (
        "import time; from pillarbox.lab.processes import Crew; crew = Crew(); print(1, flush=True); time.sleep(60)"
    )
    lab = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    assert lab.stdout.readline()
    (left,) = tmp_path.glob("pillarbox_lab_*")
    assert remove_left_folders() == []  # it lives
    lab.kill()
    lab.wait(10)
    lab.stdout.close()
    assert remove_left_folders() == [str(left)]
    assert not left.exists()


def test_a_temporary_folder_with_a_long_name_is_refused_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(LabError, match="cannot meet") as refused:
        Crew()
    assert "TMPDIR" in refused.value.how_to_fix
    assert list(deep.iterdir()) == []


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
