"""Pruners as real processes, killed between batches and within one: nothing is lost, and the next goes on."""

import subprocess
import sys

import pytest

from pillarbox.ops.prune import Pruner, Rules, run
from pillarbox.policy.retention import Keep
from tests.integration.prune.mixture import DAY, Planned, event_ids, mixture, put, receipt_ids
from tests.sql_outbox import SqlOutbox, wait_until

CHILD = """
import sys, threading
from pillarbox import faultpoints
from pillarbox.ops.prune import Pruner, Rules, run
from pillarbox.policy.retention import Keep
from pillarbox.store.engines import Timeouts, relay_engine

url, point, times = sys.argv[1], sys.argv[2], int(sys.argv[3])

def stall(name):
    global times
    times -= name == point
    if not times:
        print("there", flush=True)
        threading.Event().wait()

faultpoints.attach(stall)
archive = (lambda rows: None) if point == "prune.handed-over" else "table"
rules = Rules(Keep(7 * 86400), batch=10, archive=archive)
pruner = Pruner(relay_engine(url, pool_size=2, timeouts=Timeouts(lock=1)), rules)
run(pruner, pause=lambda seconds: None)
"""


@pytest.mark.parametrize("point", ["prune.within", "prune.after-batch", "prune.handed-over"])
def test_a_pruner_killed_there_loses_nothing_and_the_next_one_goes_on(outbox: SqlOutbox, point: str) -> None:
    planned = [*[Planned(["SENT"], [60]) for _ in range(30)], *mixture(60, 3), Planned(["SENT"], [1])]
    put(outbox, planned)
    keep = {one.number for one in planned if not one.may_go(7, None)}
    before = event_ids(outbox)

    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, outbox.url, point, "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n", child.stderr and child.stderr.read().decode()
    finally:
        child.kill()
        child.wait(10)
        child.communicate()

    left = event_ids(outbox)  # of a batch that was open, everything is still there
    removed = {"prune.within": 20, "prune.after-batch": 30, "prune.handed-over": 20}[point]
    assert len(before - left) == removed
    assert keep & before <= left
    assert {one.number for one in planned if "SENT" in one.deliveries} & left <= receipt_ids(outbox)

    pruner = Pruner(outbox.engine, Rules(Keep(sent=7 * DAY), batch=10))
    wait_until(lambda: not pruner.step().elsewhere)  # the server notices that the session of the killed one is gone
    run(pruner, pause=lambda seconds: None)
    pruner.close()
    assert event_ids(outbox) == keep & before
    with outbox.engine.begin() as connection:
        for table in ("outbox_archive", "outbox_archive_delivery"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
