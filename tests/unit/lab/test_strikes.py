"""Faults at named points: in this process, in a child, and in a program that knows nothing of it."""

import multiprocessing
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pillarbox import faultpoints
from pillarbox.errors import LabError, PointNotReached
from pillarbox.faultpoints import reach
from pillarbox.lab.strikes import fail_at, kill_at, stall_at

STRUCK = [sys.executable, "-m", "pillarbox.lab.struck"]
PROGRAM = """
import sys
from pillarbox.faultpoints import reach
for number in range(3):
    print(number, *sys.argv[1:], flush=True)
    reach("shop.paid")
"""


def test_the_error_is_raised_at_the_chosen_passage_and_only_there() -> None:
    with fail_at("shop.paid", ConnectionError("gone"), times=2) as strike:
        reach("shop.paid")
        assert not strike.reached
        with pytest.raises(ConnectionError, match="gone"):
            reach("shop.paid")
        reach("shop.paid")
    assert strike.reached


def test_a_strike_that_never_came_fails_the_test() -> None:
    with pytest.raises(PointNotReached, match=r"shop\.payed"), fail_at("shop.payed", ConnectionError):
        reach("shop.paid")


def test_an_error_in_the_block_is_not_hidden_by_the_strike_that_never_came() -> None:
    with pytest.raises(ZeroDivisionError), fail_at("shop.paid", ConnectionError):
        _ = 1 / 0


def test_strikes_at_several_points_go_together_and_leave_nothing_attached() -> None:
    passed: list[str] = []
    before = faultpoints.attach(passed.append)
    try:
        with fail_at("a", KeyError), fail_at("b", ValueError):
            for name, error in (("a", KeyError), ("b", ValueError)):
                with pytest.raises(error):
                    reach(name)
        reach("c")
    finally:
        faultpoints.attach(before)
    assert passed == ["a", "b", "c"]


def test_a_thread_is_held_until_it_may_go() -> None:
    done = threading.Event()

    def pay() -> None:
        reach("shop.paid")
        done.set()

    with stall_at("shop.paid") as hold:
        thread = threading.Thread(target=pay)
        thread.start()
        hold.wait()
        assert not done.is_set()
        hold.go()
        assert done.wait(5)
        thread.join()


def test_a_held_thread_goes_on_when_the_block_ends() -> None:
    thread = threading.Thread(target=reach, args=("shop.paid",))
    with stall_at("shop.paid") as hold:
        thread.start()
        hold.wait()
    thread.join(5)
    assert not thread.is_alive()


def test_waiting_for_a_point_that_is_not_reached_ends_with_its_name() -> None:
    with pytest.raises(PointNotReached, match=r"shop\.paid"), stall_at("shop.paid") as hold:
        hold.wait(0.01)


def _die() -> None:
    with kill_at("shop.paid"):
        reach("shop.paid")


def test_a_child_process_is_killed_at_the_point() -> None:
    child = multiprocessing.get_context("fork").Process(target=_die)
    child.start()
    child.join(10)
    assert child.exitcode == -signal.SIGKILL


def test_the_test_run_itself_is_not_killed() -> None:
    with pytest.raises(LabError, match="test run itself"), kill_at("shop.paid"):
        pass


def test_a_program_that_knows_nothing_of_it_is_killed_at_the_chosen_passage(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [*STRUCK, "--kill-at", "shop.paid:2", str(program), "--fast"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split("\n") == ["0 --fast", "1 --fast", ""]


def test_a_misspelt_point_of_pillarbox_is_refused_before_the_program_runs_for_ever() -> None:
    command = [*STRUCK, "--kill-at", "relay.after-konfirm", "-m", "pillarbox", "relay"]
    wrong = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "no point 'relay.after-konfirm'" in wrong.stderr
    assert "relay.after-confirm" in wrong.stderr


def test_a_module_is_run_as_well_and_a_wrong_line_is_told(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    command = [*STRUCK, "--kill-at", "never", "-m", "shop", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=tmp_path)
    assert (done.returncode, done.stdout.split("\n")[0]) == (0, "0 x")
    wrong = subprocess.run([*STRUCK, "--kill-at", "x", "-m"], capture_output=True, text=True, timeout=30)
    assert (wrong.returncode, wrong.stderr[:6]) == (1, "usage:")
