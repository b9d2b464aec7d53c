"""A relay that is frozen beyond its lease, and wakes up among others: it records nothing, and spoils no order."""

import json
import re
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pillarbox.policy.lanes import PARTITIONS, lane_of, partition_of
from tests.crash.ordered_lab import Lab, wait_until
from tests.crash.ordered_order import in_topic, wrong
from tests.servers import bootstrap_of

LEASE, DEADLINE = 3.0, 1.4


@pytest.fixture(params=["mysql", "postgres"])
def lab(request: pytest.FixtureRequest, make_topic: Callable[..., str], tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(request.getfixturevalue(f"{request.param}_url"), make_topic(6), tmp_path)
    yield lab
    lab.close()


class Watch:
    """Notes every owner of every partition that a look into the table shows."""

    def __init__(self, lab: Lab) -> None:
        self.owners: dict[tuple[int, int], set[str]] = defaultdict(set)
        self._lab = lab

    def shares(self, *names: str) -> bool:
        """Whether these relays own all partitions, and each its share."""
        found = self._lab.partitions()
        for one in found:
            if one.owner:
                self.owners[one.number, one.token].add(one.owner)
        each = [sum(one.owner == name for one in found) for name in names]
        return sum(each) == PARTITIONS and max(each) - min(each) <= 1


def test_a_frozen_relay_that_wakes_up_settles_nothing_reads_nothing_and_joins_again(lab: Lab, kafka_url: str) -> None:
    """C018: three relays, one frozen beyond its lease; never two owners under one token, order and loss at Kafka."""
    watch = Watch(lab)

    def relay(name: str):  # type: ignore[no-untyped-def]
        return lab.relay(name, kafka_url, lease=LEASE, deadline=DEADLINE)

    with relay("a") as a, relay("b") as b, relay("c") as c, lab.load() as load:
        wait_until(lambda: watch.shares("a", "b", "c") and lab.sent() > 100, 30, "sharing by three")
        before = {one.number: one.token for one in lab.partitions() if one.owner == "a"}
        a.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: watch.shares("b", "c"), LEASE + 10, "the takeover")
        (taken_over,) = lab.rows("SELECT MAX(id), MAX(sent_at) FROM outbox_receipt")
        wait_until(lambda: lab.sent() > taken_over[0] / 2, 10)
        a.process.send_signal(signal.SIGCONT)
        a.wait_for("was lost: it was ours under token", 15)
        wait_until(lambda: watch.shares("a", "b", "c"), 15, "joining again")
        load.stop()
        wait_until(lambda: lab.waiting() == 0, 30, "the end")
        for one in (a, b, c):
            one.process.send_signal(signal.SIGTERM)
        reports = [json.loads(one.ended(20).out) for one in (a, b, c)]

    assert wrong(lab, in_topic(bootstrap_of(kafka_url), lab.destination)) == []
    assert all(len(owners) == 1 for owners in watch.owners.values()), watch.owners
    assert reports[0]["partitions_lost"] == len(before)
    assert [report["dead"] for report in reports] == [0, 0, 0]
    assert _told(a.err) == {number: (token, token + 1) for number, token in before.items()}
    assert _settled_by_a_stale_owner(lab, before, taken_over[1]) == []


def _told(log: str) -> dict[int, tuple[int, int]]:
    """Own token and the new owner's, by partition, as the log has them."""
    pattern = r"partition (\d+) was lost: it was ours under token (\d+) and is [bc]'s under token (\d+)"
    return {int(number): (int(own), int(other)) for number, own, other in re.findall(pattern, log)}


def _settled_by_a_stale_owner(lab: Lab, before: dict[int, int], since: object) -> list[tuple[int, int]]:
    """Partition and token of receipts that the frozen one wrote after others had taken over."""
    sql = (
        "SELECT e.event_key, r.token FROM outbox_receipt r JOIN outbox_event e ON e.id = r.id"
        " WHERE r.relay = 'a' AND r.sent_at > %s"
    )
    with lab.world.engine.connect() as connection:
        rows = connection.exec_driver_sql(sql, (since,)).all()
    return [found for key, token in rows if (found := (partition_of(lane_of(key)), token)) in before.items()]
