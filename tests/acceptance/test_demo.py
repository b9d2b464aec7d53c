"""The demo as a stranger runs it: real processes, real kills, and a verdict that can be trusted."""

import json
import subprocess
import sys

import pytest


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command; its own deadline is shorter than this one."""
    return subprocess.run(
        [sys.executable, "-m", "pillarbox", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.timeout(250)
def test_the_demo_shows_ghosts_and_losses_of_the_naive_ways_and_none_of_the_outbox() -> None:
    done = demo("--orders", "150", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    ways = json.loads(done.stdout)["ways"]
    assert ways["inside"]["ghosts"] > 0
    assert ways["after"]["losses"] > 0
    assert ways["inside"]["applied_twice"] > 0
    outbox = ways["outbox"]
    assert (outbox["ghosts"], outbox["losses"], outbox["applied_twice"]) == (0, 0, 0)
    assert outbox["orders"] == outbox["events"] == outbox["published"] == outbox["applied"] > 0
    assert outbox["duplicates_delivered"] > 0  # the kills were real
    assert outbox["kills"] == {"shop": 3, "relay": 3, "stock": 3}


@pytest.mark.timeout(150)
def test_the_last_line_judges_the_outbox() -> None:
    done = demo("--only", "outbox", "--orders", "40")
    assert done.stdout.strip().splitlines()[-1] == "ghosts 0, losses 0, applied twice 0"
    assert done.returncode == 0


def test_a_broker_that_the_demo_does_not_know_is_refused_in_one_sentence() -> None:
    done = demo("--broker", "carrier-pigeon://loft")
    assert done.returncode != 0
    assert "PB-002" in done.stderr
    assert "Traceback" not in done.stderr
