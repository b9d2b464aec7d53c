"""Decisions behind `pillarbox relay`: which relays, when they start again, which exit code, who counts as silent."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from pillarbox.cli.exit_codes import ExitCode
from pillarbox.cli.relays.parent import Parent, worst
from pillarbox.cli.relays.place import SILENT, Place
from pillarbox.cli.relays.plan import planned
from pillarbox.cli.relays.restarts import Restarts
from pillarbox.config import Config, OutboxConfig, RelayConfig
from pillarbox.errors import BadUrl, ConfigError
from pillarbox.observe.snapshot import Snapshot
from pillarbox.policy.health import Health
from pillarbox.testing.clock import FakeClock
from tests.sql_outbox import wait_until

POSTGRES, MYSQL = "postgresql://app@db/shop", "mysql://app@db/shop"


def config(**more: object) -> Config:
    return Config(**({"database": POSTGRES, "broker": "kafka://k:1"} | more))  # type: ignore[arg-type]


# Which relays -----------------------------------------------------------------------------------------------------


def test_one_outbox_is_one_relay_with_the_name_that_was_given() -> None:
    (one,) = planned(config(relay=RelayConfig(id="r")))
    assert (one.process, one.outbox, one.relay_id) == (0, "default", "r")


def test_processes_and_outboxes_make_names_that_differ_and_fit() -> None:
    several = config(
        outboxes={"shop": OutboxConfig(database=MYSQL), "billing": OutboxConfig(database=POSTGRES, broker="amqp://b")},
        relay=RelayConfig(id="r" * 64),
    )
    made = [one for process in (0, 11) for one in planned(several, process)]
    assert [(one.process, one.outbox) for one in made] == [(0, "shop"), (0, "billing"), (11, "shop"), (11, "billing")]
    assert len({one.relay_id for one in made}) == 4
    assert {len(one.relay_id) for one in made} == {64}
    assert [one.config.broker for one in made[:2]] == ["kafka://k:1", "amqp://b"]


def test_a_database_that_was_given_on_the_command_line_wins_over_the_table_of_outboxes() -> None:
    both = config(outboxes={"shop": OutboxConfig(database=MYSQL)})
    assert [one.outbox for one in planned(both, database_given=True)] == ["default"]


def test_settings_that_no_restart_mends_are_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="No broker"):
        planned(Config(outboxes={"shop": OutboxConfig(database=MYSQL)}))
    with pytest.raises(BadUrl):
        planned(config(outboxes={"shop": OutboxConfig(database="nonsense")}))
    with pytest.raises(ConfigError, match="Only PostgreSQL"):
        planned(config(database=MYSQL, relay=RelayConfig(listen=True)))


def test_among_several_only_those_on_postgresql_listen() -> None:
    several = config(
        outboxes={"a": OutboxConfig(database=MYSQL), "b": OutboxConfig(database=POSTGRES)},
        relay=RelayConfig(listen=True),
    )
    assert [one.config.relay.listen for one in planned(several)] == [False, True]


# When they are started again --------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_longest_and_never_end_without_a_limit() -> None:
    restarts = Restarts()
    assert [restarts.after(0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert [restarts.after(0) for _ in range(2000)][-1] == 30


def test_whoever_lived_for_a_while_begins_anew() -> None:
    restarts = Restarts(limit=2)
    assert [restarts.after(lived) for lived in (0, 0, 60, 0, 0)] == [1, 2, 1, 2, None]
    assert restarts.total == 4


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], ExitCode.OK),
        ([0, 0], ExitCode.OK),
        ([0, 1], ExitCode.FAILED),
        ([-9, 0], ExitCode.FAILED),
        ([77], ExitCode.FAILED),
        ([1, 4, 0], ExitCode.UNAVAILABLE),
        ([4, 5, 6], ExitCode.TABLES),
        ([3, 5], ExitCode.CONFIG),
    ],
)
def test_the_worst_code_is_the_one_that_needs_a_human_most(codes: list[int], code: ExitCode) -> None:
    assert worst(codes) is code


# Who counts as silent ---------------------------------------------------------------------------------------------


def talking(*lines: object) -> subprocess.Popen[bytes]:
    """A process that says these lines and then waits to be told to end."""
    program = (
        f"import sys\nfor line in {[json.dumps(line) for line in lines]!r}: print(line, flush=True)\nsys.stdin.read()"
    )
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_process_that_says_nothing_is_first_not_ready_and_after_a_lease_not_alive() -> None:
    clock = FakeClock()
    place = Place(1, "{}", lease=60, restarts=Restarts(limit=5), clock=clock)
    snapshot = Snapshot(1, "default", "r", {"sent": 3}, Health(True, True))
    place.start(lambda: talking("not JSON{", {"snapshots": [snapshot.as_dict()]}))
    wait_until(lambda: bool(place._said))
    assert place.snapshots(["default"]) == [snapshot]
    clock.advance(SILENT + 1)
    (silent,) = place.snapshots(["default"])
    assert (silent.health.live, silent.health.ready, silent.counters) == (True, False, {"sent": 3})
    clock.advance(60)
    assert not place.snapshots(["default"])[0].health.live
    place._child.kill()  # type: ignore[union-attr]
    wait_until(lambda: place.ended() is not None)
    assert place.snapshots(["default"])[0].health.problems == ("the process is being started",)


def test_a_process_that_dies_too_often_in_a_row_ends_all_of_them_with_its_code() -> None:
    """The first one stays, every other one fails at once."""
    started: list[subprocess.Popen[bytes]] = []

    def spawn() -> subprocess.Popen[bytes]:
        program = "import sys; sys.stdin.read()" if not started else "raise SystemExit(4)"
        started.append(subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return started[-1]

    parent = Parent(
        config(relay=RelayConfig(processes=2)),
        until_empty=False,
        timeout=None,
        database_given=False,
        spawn=spawn,
        restarts=lambda: Restarts(first=0.01, limit=2),
    )
    parent.run()
    assert len(started) == 4  # one that stayed, one that failed and its two restarts
    assert started[0].returncode == -signal.SIGTERM
    assert parent.code() is ExitCode.UNAVAILABLE
