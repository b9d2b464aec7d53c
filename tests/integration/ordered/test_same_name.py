"""Relays with one fixed name: a predecessor that crashed is replaced in time, a second living one is sent away."""

import threading
import time

import pytest

from pillarbox.errors import RelayIdTaken
from pillarbox.policy.lanes import PARTITIONS
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore
from tests.crash.ordered_lab import Lab, wait_until
from tests.integration.ordered.working import relay

LEASE = 2.0


def test_a_relay_started_again_under_its_name_takes_over_when_the_leases_end(lab: Lab, broker: MemoryPublisher) -> None:
    died = PartitionStore(relay_engine(lab.world.url, pool_size=2), relay_id="a", lease=LEASE)
    died.enter(LEASE)
    assert len(died.acquire(range(PARTITIONS))) == PARTITIONS
    began = time.monotonic()
    lab.add("k")
    with relay(lab.world.url, broker, "a", lease=LEASE) as again:
        wait_until(lambda: lab.sent() == 1 and again.stats.partitions == PARTITIONS, 20)
        took = time.monotonic() - began
        time.sleep(LEASE * 2)  # not for a result: so long it must not be taken for two
        lab.add("k")
        wait_until(lambda: lab.sent() == 2, 20)
    assert took > LEASE / 2
    died._engine.dispose()


def test_a_second_living_relay_with_the_same_name_ends_and_the_first_goes_on(lab: Lab, broker: MemoryPublisher) -> None:
    with relay(lab.world.url, broker, "a", lease=LEASE) as first:
        wait_until(lambda: first.stats.partitions == PARTITIONS)
        with pytest.raises(RelayIdTaken) as refused, relay(lab.world.url, broker, "a", lease=LEASE):
            wait_until(lambda: sum(one.name == "relay-a" for one in threading.enumerate()) == 1, 30, "its end")
        assert refused.value.code == "PB-034"
        lab.add("k")
        wait_until(lambda: lab.sent() == 1)
        assert first.stats.partitions == PARTITIONS
        assert first.stats.partitions_lost == 0
