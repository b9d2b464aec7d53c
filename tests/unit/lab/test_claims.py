"""Names that the lab takes, and how it knows its own again."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pillarbox.lab.grounds.claims import abandoned, base_of, claim, claimed_here, forget, journals
from pillarbox.lab.ports import PREFIX


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_name_that_is_in_use_is_not_abandoned_and_its_journal_ends_with_it() -> None:
    with claim("kafka", "W1-S1") as taken:
        assert taken.name.startswith(PREFIX)
        assert claimed_here() == {taken.name}
        with abandoned("kafka") as left:
            assert left == ()
    assert claimed_here() == frozenset()


def test_a_killed_process_leaves_its_names_to_be_found_by_their_kind() -> None:
    program = (
        "import os, signal\nfrom pillarbox.lab.grounds.claims import claim\n"
        "with claim('kafka', 'W1-S1') as one, claim('folder', 'W1-S1'):\n"
        "    print(one.name, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert killed.returncode == -9
    with abandoned("kafka") as left:
        assert [(one.name, one.cell) for one in left] == [(killed.stdout.strip(), "W1-S1")]
        with abandoned("kafka") as again:
            assert again == (), "held by whoever looked first"
        forget(left[0].name)
    with abandoned("kafka") as left:
        assert left == ()
    assert len(claimed_here()) == 1, "the folder's is still there"


def test_an_error_leaves_the_journal_for_the_next_look() -> None:
    with pytest.raises(ZeroDivisionError), claim("database", "W1-S1"):
        raise ZeroDivisionError
    with abandoned("database") as left:
        assert len(left) == 1


def test_a_journal_that_makes_no_sense_is_passed_over() -> None:
    journals().mkdir(parents=True)
    (journals() / f"{PREFIX}0123456789ab.json").write_text('{"kind": "kafka"')
    (journals() / f"{PREFIX}0123456789ac.json").write_text(
        '{"kind": "kafka", "name": "orders", "cell": "", "folder": "/"}'
    )
    with abandoned("kafka") as left:
        assert left == ()


def test_a_journal_of_a_month_ago_is_of_a_server_that_is_gone() -> None:
    with pytest.raises(ZeroDivisionError), claim("database", "W1-S1") as taken:
        raise ZeroDivisionError
    long_ago = time.time() - 31 * 86_400
    os.utime(journals() / f"{taken.name}.json", (long_ago, long_ago))
    with abandoned("kafka") as left:
        assert left == ()
    assert claimed_here() == frozenset()


def test_where_no_journal_can_be_written_the_lab_works_and_says_what_that_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with claim("kafka", "W1-S1") as taken:
        assert taken.name
    assert "by hand" in caplog.text


@pytest.mark.parametrize(
    ("name", "base"),
    [
        (f"{PREFIX}0123456789ab", f"{PREFIX}0123456789ab"),
        (f"{PREFIX}0123456789ab_shop", f"{PREFIX}0123456789ab"),
        (f"{PREFIX}0123456789ab.C2.dead", f"{PREFIX}0123456789ab"),
        (f"{PREFIX}0123456789abc", None),
        (f"{PREFIX}orders", None),
        ("orders", None),
    ],
)
def test_a_name_says_from_which_claim_it_was_made(name: str, base: str | None) -> None:
    assert base_of(name) == base
