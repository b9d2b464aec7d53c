"""Alive and ready: one rule for every relay."""

import threading
import time

import pytest

from pillarbox.policy.health import Vitals, judge
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import Relay
from pillarbox.relay.health import Pulse
from pillarbox.store.memory import MemoryStore
from pillarbox.testing.clock import FakeClock

WELL = Vitals(True, 0.1, True, True, owned=4, entitled=4)


def test_a_relay_that_works_is_live_and_ready() -> None:
    assert judge(WELL, quiet=60)[:3] == (True, True, ())


@pytest.mark.parametrize(
    ("vitals", "live"),
    [
        (WELL._replace(running=False), False),
        (WELL._replace(moved_ago=61), False),
        (WELL._replace(moved_ago=None), True),
        (WELL._replace(database_reachable=False), True),
        (WELL._replace(broker_reachable=False), True),
        (WELL._replace(owned=0), True),
        (WELL._replace(owned=0, entitled=None), True),
    ],
)
def test_only_a_loop_that_stands_still_is_dead_and_everything_else_is_not_ready(vitals: Vitals, live: bool) -> None:
    found = judge(vitals, quiet=60)
    assert (found.live, found.ready, len(found.problems)) == (live, False, 1)


def test_a_relay_in_excess_is_ready_to_step_in() -> None:
    assert judge(WELL._replace(owned=0, entitled=0), quiet=60).ready
    assert judge(WELL._replace(owned=None, entitled=None), quiet=60).ready


def test_a_pulse_tells_how_long_the_loop_stood_still() -> None:
    clock = FakeClock()
    pulse = Pulse(60, clock)
    with pulse.running():
        pulse.moved()
        clock.advance(59)
        assert pulse.health(broker_reachable=True).ready
        clock.advance(2)
        found = pulse.health(broker_reachable=True)
    assert not found.live
    assert found.problems == ("the loop has not moved for 61 s",)
    assert found.details["moved_seconds_ago"] == 61


def test_a_relay_is_ready_while_it_runs_and_not_live_afterwards() -> None:
    relay = Relay(MemoryStore(), MemoryPublisher())
    assert not relay.health().live
    with relay.started():
        deadline = time.monotonic() + 10
        while not relay.health().ready and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        assert relay.health().ready
    assert relay.health().problems[0] == "the relay does not run"
