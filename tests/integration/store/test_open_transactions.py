"""An application's open transaction holds up no relay, even where the tables are so small that a scan looks cheap."""

import time

import pytest
from sqlalchemy import create_engine

from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, Relay, RelaySettings
from pillarbox.store import write
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.testing.conformance.store_world import event
from tests.servers import DATABASES
from tests.sql_outbox import SqlOutbox

pytestmark = pytest.mark.services


@pytest.mark.parametrize("shared_outbox", DATABASES, indirect=True)
@pytest.mark.parametrize("events", [10, 30, 100])
@pytest.mark.parametrize("lease", ["row", "partition"])
def test_a_relay_settles_beside_uncommitted_events(outbox: SqlOutbox, lease: str, events: int) -> None:
    """C015, C042. MySQL scanned the whole primary key for a DELETE by keys, and waited for the application's rows."""
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM outbox_relay")
    outbox.add([event(key=f"key-{n}") for n in range(events)])
    application_engine, engine = create_engine(outbox.url), relay_engine(outbox.url)
    publisher, settings = MemoryPublisher(), RelaySettings(batch=max(5, events // 2), lease=30.0, broker_deadline=10.0)
    if lease == "row":
        relay: Relay | OrderedRelay = Relay(RowLeaseStore(engine, relay_id="r", lease=30.0), publisher, settings)
    else:
        relay = OrderedRelay(PartitionStore(engine, relay_id="r", lease=30.0), publisher, settings)
    with application_engine.connect() as application:
        write.insert(application, [write.row_of(event(key=f"open-{n}")) for n in range(40)])
        began = time.monotonic()
        relay.run(until_empty=True)
        took = time.monotonic() - began
        application.rollback()
    application_engine.dispose()
    assert len(publisher.arrived) == events
    assert took < 4  # a wait for a lock is five seconds
