"""`until_empty` of a relay that owns nothing, since others have all the partitions: it ends with the whole outbox."""

import threading

from pillarbox.policy.lanes import PARTITIONS
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore
from tests.crash.ordered_lab import Lab, wait_until
from tests.integration.ordered.working import settings


def store(lab: Lab, name: str) -> PartitionStore:
    return PartitionStore(relay_engine(lab.world.url, pool_size=2), relay_id=name, lease=60.0)


def test_a_relay_without_a_partition_ends_when_the_whole_outbox_is_empty(lab: Lab, broker: MemoryPublisher) -> None:
    lab.add("k")
    owner = store(lab, "a")
    owner.enter(60.0)
    for number in range(1, PARTITIONS):  # one relay for each partition, so that the last one by name has none
        lab.execute(
            "INSERT INTO outbox_relay (relay_id, seen_until, lease, version, host, started_at)"
            f" SELECT 'b{number:02d}', seen_until, lease, version, host, started_at FROM outbox_relay"
            " WHERE relay_id = 'a'"
        )
    owner.acquire(range(PARTITIONS))
    last = OrderedRelay(store(lab, "z"), broker, settings(60.0))
    thread = threading.Thread(target=lambda: last.run(until_empty=True), daemon=True)
    thread.start()
    wait_until(lambda: last._duties.entitled == 0 and lab.one("SELECT COUNT(*) FROM outbox_relay") == PARTITIONS + 1)
    thread.join(1.5)
    assert thread.is_alive()
    assert last.stats.partitions == 0
    lab.execute("DELETE FROM outbox_ready")  # as if its owner had sent it
    thread.join(10)
    assert not thread.is_alive()
    assert lab.owned_by("a") == PARTITIONS
    owner.close()
