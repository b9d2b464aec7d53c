"""`pillarbox relay --processes`: real children of a real parent, killed, interrupted and orphaned."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from .events import Shop
from .processes import Cli, Started
from .test_relay_endpoints import ANYWHERE, get, metric

TWO = ("relay", "--processes", "2", "--lease", "2", "--broker-deadline", "0.5")


def children(relay: Started) -> dict[int, int]:
    """Number of the process -> its latest pid."""
    return {int(n): int(pid) for n, pid in re.findall(r"relay process (\d+) is (\d+)", relay.err)}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def sent(shop: Shop) -> int:
    return int(shop.rows("SELECT COUNT(*) FROM outbox_receipt")[0][0])


def test_two_processes_share_the_work_and_report_together(cli: Cli, shop: Shop) -> None:
    with cli.started(*TWO, *ANYWHERE, "--json", "--relay-id", "r", env=shop.env) as relay:
        relay.until(lambda: get(relay, "/ready")[0] == 200)
        shop.place(500)
        relay.until(lambda: sent(shop) == 500)
        relay.until(lambda: metric(relay, "pillarbox_relay_sent_total") == 500)
        assert get(relay, "/metrics")[1].count("pillarbox_relay_sent_total{") == 2
        assert metric(relay, "pillarbox_outbox_relays") == 2
        relay.process.send_signal(signal.SIGTERM)
        ended = relay.ended()
    assert (ended.code, ended.json["sent"]) == (0, 500)
    assert {one["relay"] for one in ended.json["relays"]} == {"r.0", "r.1"}


def test_until_empty_ends_all_of_them_with_the_worst_code(cli: Cli, shop: Shop) -> None:
    shop.place(300)
    drained = cli.run(*TWO, "--until-empty", "--json", env=shop.env)
    assert (drained.code, drained.json["sent"], drained.json["left"]) == (0, 300, 0)


@pytest.mark.parametrize("named", [(), ("--relay-id", "r")])
def test_a_killed_process_is_started_again_and_nothing_is_lost(cli: Cli, shop: Shop, named: tuple[str, ...]) -> None:
    """With a name that was given, the next process is called like the one that died with its lease."""
    with cli.started(*TWO, *ANYWHERE, *named, env=shop.env) as relay:
        relay.until(lambda: get(relay, "/ready")[0] == 200)
        first = children(relay)
        os.kill(first[0], signal.SIGKILL)
        relay.wait_for("relay process 0 ended with -9, is started again in 1 s")
        relay.until(lambda: get(relay, "/ready")[0] == 503)
        shop.place(200)
        relay.until(lambda: sent(shop) == 200)
        relay.until(lambda: children(relay)[0] != first[0] and get(relay, "/ready")[0] == 200)
        assert children(relay)[1] == first[1]
        assert metric(relay, "pillarbox_relay_restarts_total") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_as_a_terminal_sends_it_ends_all_in_order(
    cli: Cli, shop: Shop, number: int
) -> None:
    with cli.started(*TWO, *ANYWHERE, env=shop.env) as relay:
        relay.until(lambda: get(relay, "/ready")[0] == 200)
        for pid in (relay.process.pid, *children(relay).values()):
            os.kill(pid, number)
        ended = relay.ended()
    assert ended.code == 0, ended.err
    ended.says("finishing what is in flight")
    assert "second signal" not in ended.err
    assert not any(map(alive, children(relay).values()))


def test_children_of_a_killed_parent_end_by_themselves(cli: Cli, shop: Shop) -> None:
    with cli.started(*TWO, *ANYWHERE, env=shop.env) as relay:
        relay.until(lambda: get(relay, "/ready")[0] == 200)
        orphans = list(children(relay).values())
        relay.process.kill()
        relay.process.wait(10)
        deadline = time.monotonic() + 20
        while any(map(alive, orphans)):
            assert time.monotonic() < deadline, relay.err
            time.sleep(0.05)
        assert relay.err.count("the parent process is gone") == 2


def test_what_no_restart_mends_ends_all_at_once_with_its_code(cli: Cli, tmp_path: Path) -> None:
    missing = {"PILLARBOX_DATABASE": f"sqlite:///{tmp_path / 'no.db'}", "PILLARBOX_BROKER": "embedded:///tmp/x"}
    ended = cli.run(*TWO, env=missing)
    assert ended.code == 5
    ended.says("PB-006", "no restart would help")


@pytest.mark.parametrize("given", ["0", "-1", "65", "many"])
def test_a_number_of_processes_that_is_none_is_refused(cli: Cli, shop: Shop, given: str) -> None:
    assert cli.run("relay", "--processes", given, env=shop.env).code in (2, 3)
