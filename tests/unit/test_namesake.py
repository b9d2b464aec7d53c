"""Two relays with one name: a predecessor that died is waited for, one that lives ends the one that has less."""

from __future__ import annotations

import threading

import pytest

from pillarbox.errors import RelayIdTaken
from pillarbox.ports import Fleet, PartitionState
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay.ordered.namesake import Namesake
from pillarbox.store.memory_outbox import MemoryOutbox
from tests.unit.test_ordered_relay import eventually, relay

LEASE = 60.0


def fleet(**free_in: float | None) -> Fleet:
    """Partitions owned by "a" and for how long yet; None: free."""
    states = [PartitionState(int(n[1:]), "a", left is None, left or 0.0) for n, left in free_in.items()]
    return Fleet(["a"], states)


def test_a_predecessor_that_died_is_waited_for_until_its_leases_end() -> None:
    namesake = Namesake("a", LEASE)
    for now in range(60):
        assert namesake.look(fleet(p0=60.0 - now, p1=60.0 - now), set(), now) == "waiting"
    assert namesake.partitions == [0, 1]
    assert namesake.look(fleet(p0=None, p1=None), set(), 60.0) == "none"


def test_a_predecessor_with_a_longer_lease_is_waited_for_as_long() -> None:
    namesake = Namesake("a", LEASE)
    assert [namesake.look(fleet(p0=600.0 - now), set(), now) for now in (0.0, 300.0, 599.0)] == ["waiting"] * 3


def test_one_that_renews_for_longer_than_that_lives() -> None:
    namesake = Namesake("a", LEASE)
    found = [namesake.look(fleet(p0=55.0), set(), float(now)) for now in range(0, 100, 10)]
    assert found == ["waiting"] * 10
    assert namesake.look(fleet(p0=55.0), set(), 91.0) == "lives"


@pytest.mark.parametrize(("mine", "finding"), [({2}, "lives"), ({2, 3}, "lives"), ({2, 3, 4}, "waiting")])
def test_of_two_that_live_the_one_with_fewer_partitions_ends(mine: set[int], finding: str) -> None:
    namesake = Namesake("a", LEASE)
    namesake.look(fleet(p0=55.0, p1=55.0), mine, 0.0)
    assert namesake.look(fleet(p0=55.0, p1=55.0), mine, 91.0) == finding


def test_the_second_of_two_relays_with_one_name_ends_and_the_first_goes_on() -> None:
    outbox = MemoryOutbox()
    first, second = (relay(outbox, MemoryPublisher(), "a", lease=0.6, broker_deadline=0.2) for _ in range(2))
    raised: list[BaseException] = []

    def run() -> None:
        try:
            second.run()
        except RelayIdTaken as error:
            raised.append(error)

    with first.started():
        eventually(lambda: first.stats.partitions == 16)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        assert [error.code for error in raised] == ["PB-034"]
        assert first.stats.partitions == 16
