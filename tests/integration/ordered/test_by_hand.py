"""What somebody's hand, or another kind of lease, leaves in the tables: it is seen, and goes out."""

from pillarbox.ports import Rejected
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import Relay
from pillarbox.store.engines import relay_engine
from pillarbox.store.rowlease import RowLeaseStore
from tests.crash.ordered_lab import Lab, wait_until
from tests.integration.ordered.working import relay, settings


def test_held_events_whose_hold_was_deleted_go_out_with_the_next_sweep(lab: Lab) -> None:
    broker = MemoryPublisher(lambda message: Rejected("no", permanent=True) if message.payload == b"bad" else None)
    lab.add("k", payload=b"bad")
    lab.add("k", "k", "k")
    with relay(lab.url, broker):
        wait_until(lambda: lab.one("SELECT COUNT(*) FROM outbox_parked WHERE state = 'HELD'") == 3, 10, "the hold")
    lab.execute("DELETE FROM outbox_lane")
    with relay(lab.url, broker):  # its first round of duties has a sweep
        wait_until(lambda: lab.sent() == 3, 10, "the three")
    assert lab.one("SELECT COUNT(*) FROM outbox_parked WHERE state = 'DEAD'") == 1


def test_rows_of_any_id_are_read_after_a_time_of_row_leases(lab: Lab) -> None:
    """A row that comes due under a row lease is ready again with an id below what partitions were read from."""
    broker = MemoryPublisher()
    lab.add(*"abcdefgh")
    with relay(lab.url, broker):
        wait_until(lambda: lab.sent() == 8, 10, "the first")
    broker.answer = lambda message: Rejected("busy", permanent=False)
    lab.add("x")
    rows = Relay(RowLeaseStore(relay_engine(lab.url), relay_id="rows", lease=3.0), broker, settings())
    rows.step()
    rows._store.close()
    lab.execute("UPDATE outbox_partition SET low_id = 1000000")
    columns = "partition_no, id, dest, lane"
    lab.execute(f"INSERT INTO outbox_ready ({columns}) SELECT {columns} FROM outbox_parked")
    lab.execute("DELETE FROM outbox_parked")
    broker.answer = None
    with relay(lab.url, broker) as one:
        wait_until(lambda: lab.sent() == 9, 10, "the last")
    assert one.stats.stragglers == 0
