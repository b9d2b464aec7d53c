"""Eight relay processes on one table."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from pillarbox.testing.conformance.store_world import event
from tests.integration.store.draining import drain, ready
from tests.sql_outbox import SqlOutbox

PROCESSES = 8
EVENTS = 4_000


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Started once for all databases. They come from a fork server, so they share nothing with this process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.integration.store.draining"])
    with ProcessPoolExecutor(PROCESSES, context) as pool:
        for started in [pool.submit(ready) for _ in range(PROCESSES)]:
            started.result(60)
        yield pool


def test_eight_processes_claim_each_event_once(outbox: SqlOutbox, processes: ProcessPoolExecutor) -> None:
    """C025, C086: leases live, clocks differ by up to a minute, nobody is killed: no event is claimed twice."""
    messages = [event(key=f"key-{n % 500}") for n in range(EVENTS)]
    outbox.add(messages)
    skews = [-30.0, 0.0, 30.0]
    running = [processes.submit(drain, outbox.url, f"relay-{n}", 50, skews[n % len(skews)]) for n in range(PROCESSES)]
    claimed = [one for process in running for one in process.result(90)]
    claims = Counter(event_id for event_id, _ in claimed)
    assert {event_id: count for event_id, count in claims.items() if count > 1} == {}
    assert claims.keys() == {one.event_id for one in messages}
    assert Counter(outbox.states().values()) == {"SENT": EVENTS}
    receipts = outbox.receipts()
    assert len({one.relay for one in receipts.values()}) > 1
