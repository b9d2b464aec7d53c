"""Ten relays and ten pruners under business load, at the application's default isolation: nobody deadlocks with them.

C042, C043. The lock that lets one pruner in at a time is left out. The server's own reports are read, not only what
clients were told: ours would have been tried again in silence.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, create_engine

from pillarbox.event.destination import Topic
from pillarbox.ops.prune import Pruner, Rules
from pillarbox.policy.retention import Keep
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, Relay, RelaySettings
from pillarbox.store import write
from pillarbox.store.engines import Timeouts, relay_engine
from pillarbox.store.ordered import PartitionStore
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.testing.conformance.store_world import event
from tests.integration.prune.mixture import event_ids, receipt_ids
from tests.sql_outbox import SqlOutbox

RELAYS = PRUNERS = 10
WRITERS = 6

pytestmark = pytest.mark.services
each_server = pytest.mark.parametrize("shared_outbox", ["mysql", "mysql57", "mariadb", "postgres"], indirect=True)


each_lease = pytest.mark.parametrize("lease", ["row", "partition"])


@each_server
@each_lease
def test_relays_and_pruners_never_deadlock_with_anybody(outbox: SqlOutbox, lease: str) -> None:
    crowd(outbox, lease, seconds=4.0)


@pytest.mark.long
@each_server
@each_lease
def test_relays_and_pruners_never_deadlock_with_anybody_for_longer(outbox: SqlOutbox, lease: str) -> None:
    crowd(outbox, lease, seconds=20.0)


def crowd(outbox: SqlOutbox, lease: str, seconds: float) -> None:
    """Run all of them for a while, then let what is left be sent."""
    with outbox.engine.begin() as connection:  # as if no relay had ever run
        connection.exec_driver_sql("DELETE FROM outbox_relay")
    before = deadlocks(outbox)
    work = Work(outbox, lease)
    with work.running():
        time.sleep(seconds)
    assert work.failures == []
    assert min(work.counts.values()) > 10
    assert deadlocks(outbox) == before
    finish(outbox, work)


def deadlocks(outbox: SqlOutbox) -> object:
    """What the server says about deadlocks: the last report that names our tables, or this database's counter."""
    with outbox.engine.connect() as connection:
        if outbox.dialect == "postgresql":
            connection.exec_driver_sql("SELECT pg_stat_clear_snapshot()")
            sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            return connection.exec_driver_sql(sql).scalar_one()
        status = connection.exec_driver_sql("SHOW ENGINE INNODB STATUS").one()[2]
        name = connection.exec_driver_sql("SELECT DATABASE()").scalar_one()
    _, found, report = status.partition("LATEST DETECTED DEADLOCK")
    report = report.partition("\nTRANSACTIONS\n")[0]
    return report if found and f"`{name}`.`outbox_" in report else None


def finish(outbox: SqlOutbox, work: "Work") -> None:
    """Nothing was lost: all that was added is sent in the end, and what is gone was sent."""
    relay = work.relay("last")
    relay.run(until_empty=True)
    arrived = {(one.event_id, one.destination) for one in work.publisher.arrived}
    there = event_ids(outbox)
    assert max(work.added) in there
    gone = work.added.keys() - there
    assert len(gone) == work.counts["removed"]
    assert {(event_id, to) for event_id in work.added.values() for to in ("things", "audit")} <= arrived
    assert receipt_ids(outbox) == there


class Work:
    """The threads, and what they have done."""

    def __init__(self, outbox: SqlOutbox, lease: str) -> None:
        self.lease = lease
        self.publisher = MemoryPublisher()
        self.failures: list[str] = []
        self.counts = {"added": 0, "sent": 0, "removed": 0}
        self.added: dict[int, str] = {}
        self._outbox = outbox
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._engines: list[Engine] = []
        with outbox.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE IF EXISTS account")
            connection.exec_driver_sql("CREATE TABLE account (id INT PRIMARY KEY, balance BIGINT NOT NULL)")
            for number in range(100):
                connection.exec_driver_sql(f"INSERT INTO account VALUES ({number}, 0)")

    @contextmanager
    def running(self) -> Iterator[None]:
        roles = [*[self._relay] * RELAYS, *[self._pruner] * PRUNERS, *[self._writer] * WRITERS]
        threads = [
            threading.Thread(target=self._guarded, args=(role, number), daemon=True)
            for number, role in enumerate(roles)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(30)
            assert not any(thread.is_alive() for thread in threads)
            for engine in self._engines:
                engine.dispose()

    def _guarded(self, role: Callable[[int], None], number: int) -> None:
        try:
            role(number)
        except Exception as error:  # noqa: BLE001 - reported by the test
            self.failures.append(f"{role.__name__}: {error!r}"[:500])

    def _engine(self, **options: object) -> Engine:
        engine = relay_engine(self._outbox.url, pool_size=2, **options)  # type: ignore[arg-type]
        self._engines.append(engine)
        return engine

    def _count(self, what: str, number: int) -> None:
        with self._lock:
            self.counts[what] += number

    def _writer(self, number: int) -> None:
        """Business at the server's default isolation: rows updated in one order, two events of two destinations."""
        engine = create_engine(self._outbox.url)
        self._engines.append(engine)
        turn = number
        while not self._stop.is_set():
            turn += 7
            with engine.begin() as connection:
                for account in sorted({turn % 100, (turn * 13) % 100}):
                    connection.exec_driver_sql(f"UPDATE account SET balance = balance + 1 WHERE id = {account}")
                messages = [event(key=f"account-{turn % 100}"), event(key=f"other-{turn % 9}")]
                ids = write.insert(connection, [write.row_of(one, [Topic("audit")]) for one in messages])
            with self._lock:
                self.added.update(zip(ids, [one.event_id for one in messages], strict=True))
            self._count("added", len(ids))
            self._stop.wait(0.01)

    def relay(self, name: str) -> Relay | OrderedRelay:
        kind = RowLeaseStore if self.lease == "row" else PartitionStore
        settings = RelaySettings(batch=50, lease=30.0, broker_deadline=10.0, due_interval=0.1)
        runs = Relay if self.lease == "row" else OrderedRelay
        return runs(kind(self._engine(), relay_id=name, lease=30.0), self.publisher, settings)  # type: ignore[arg-type]

    def _relay(self, number: int) -> None:
        relay = self.relay(f"relay-{number}")
        ended = threading.Thread(target=lambda: (self._stop.wait(), relay.stop()), daemon=True)
        ended.start()
        relay.run()
        self._count("sent", relay.stats.as_dict()["sent"])

    def _pruner(self, number: int) -> None:
        pruner = Pruner(
            self._engine(timeouts=Timeouts(lock=1)), Rules(Keep(sent=0.0), batch=20, share=1.0), alone=False
        )
        while not self._stop.is_set():
            pruner.step()
            self._stop.wait(0.005)
        self._count("removed", pruner.removed)
