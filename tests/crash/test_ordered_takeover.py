"""How long a partition is without an owner: when its relay is killed, and when it is told to stop."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.policy.lanes import PARTITIONS
from tests.crash.ordered_lab import Lab, wait_until

LEASE = 5.0
AT_ONCE = 1.5


@pytest.fixture(params=["mysql", pytest.param("postgres", marks=pytest.mark.long)])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(request.getfixturevalue(f"{request.param}_url"), "orders", tmp_path)
    yield lab
    lab.close()


def test_a_killed_relay_is_replaced_when_its_lease_ends_and_one_that_stops_at_once(lab: Lab) -> None:
    """C020, C024: kill -9, then SIGTERM; the time until the other one owns all, by the wall."""
    broker = f"embedded://{lab.folder / 'log.db'}"
    half = PARTITIONS // 2

    def relay(name: str):  # type: ignore[no-untyped-def]
        return lab.relay(name, broker, lease=LEASE, deadline=2.0)

    with relay("a") as a, relay("b"), lab.load(0.05):
        wait_until(lambda: lab.owned_by("a") == lab.owned_by("b") == half and lab.sent() > 20, 30, "sharing")
        a.process.kill()
        took = wait_until(lambda: lab.owned_by("b") == PARTITIONS, LEASE + 10, "the takeover")
        delivered = wait_until(lambda: not _older_than_a_second(lab), 5, "the delivery of what had waited")
        print(f"taken over {took:.2f} s after kill -9 (lease {LEASE:g} s), all delivered {delivered:.2f} s later")
        assert took <= LEASE + 1.0
        with relay("c") as c:
            wait_until(lambda: lab.owned_by("c") == half, 15, "sharing again")
            c.process.send_signal(signal.SIGTERM)
            took = wait_until(lambda: lab.owned_by("b") == PARTITIONS, 10, "the handover")
            print(f"handed over {took:.2f} s after SIGTERM")
            assert c.ended(10).code == 0
        assert took < AT_ONCE
    with relay("d"):
        wait_until(lambda: lab.waiting() == 0, 20, "the end")


def _older_than_a_second(lab: Lab) -> int:
    now = "clock_timestamp()" if lab.world.is_postgres else "UTC_TIMESTAMP(6)"
    return int(
        lab.one(
            "SELECT COUNT(*) FROM outbox_ready r JOIN outbox_event e ON e.id = r.id"
            f" WHERE e.recorded_at < {now} - INTERVAL '1' SECOND"
        )
    )
