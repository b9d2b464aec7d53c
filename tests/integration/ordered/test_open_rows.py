"""Rows that writers have not committed stand between the rows of a round: a settlement does not wait for them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.ports import OrderedSettlement, Progress, Sent, Span
from pillarbox.store.engines import Timeouts, relay_engine
from pillarbox.store.ordered import PartitionStore
from pillarbox.testing.conformance.store_world import event
from tests.crash.ordered_lab import Lab
from tests.servers import DATABASES


@pytest.fixture(params=DATABASES)
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(request.getfixturevalue(f"{request.param}_url"), "orders", tmp_path)
    yield lab
    lab.close()


def test_a_settlement_does_not_wait_for_rows_of_open_transactions(lab: Lab) -> None:
    """C015: on a small table MySQL would rather scan it, and wait for each row that somebody else has locked."""
    store = PartitionStore(relay_engine(lab.url, timeouts=Timeouts(lock=2)), relay_id="a", lease=60)
    store.enter(60)
    tenures = [one.tenure for one in store.acquire(range(16))]
    with lab.world.writing() as writing:
        writing.add([event(key=f"open {n}", destination="orders") for n in range(40)], ())
        for count in (1, 7, 300):
            lab.add(*(f"key {n}" for n in range(count)))
            found = store.read([Span(one.partition_no, 0) for one in tenures], 1_000, 10**8, ()).deliveries
            assert len(found) == count
            progress = [Progress(one, 0, 0, 0, 0) for one in tenures]
            began = time.monotonic()
            settled = store.settle(OrderedSettlement(progress, [Sent(one.key, None, None) for one in found]))
            took = time.monotonic() - began
            assert settled.sent == count
            assert took < 1.5, f"{count} events: it waited for {took:.1f} s"
    store.close()
