"""Databases that cut connections, refuse writes, lock rows, lose the relay's own tables, and whose clock jumps: nothing
is lost, nothing is given up, and the order of each key holds."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from sqlalchemy.exc import DBAPIError

from pillarbox.errors import LeaseMismatch, SchemaMismatch
from pillarbox.policy.lanes import PARTITIONS
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import Relay
from pillarbox.store.engines import relay_engine
from pillarbox.store.rowlease import RowLeaseStore
from tests.crash.ordered_lab import Lab, wait_until
from tests.integration.ordered.working import relay, settings, wrong

CUTS = 30


def at_work(lab: Lab, broker: MemoryPublisher, disturb: Callable[[], object], *names: str, lease: float = 2.0) -> None:
    """Relays under load, which is disturbed; in the end all is sent, in order, and shared fairly."""
    names = names or ("a",)
    relays = [relay(lab.url, broker, name, lease=lease, locks=1) for name in names]
    entered = [one.__enter__() for one in relays]
    try:
        with lab.load():
            wait_until(lambda: lab.sent() > 50 and fairly_shared(lab, names), 20, "the beginning")
            disturb()
            sent = lab.sent()
            wait_until(lambda: lab.sent() > sent + 50, lease + 15, "going on")
        wait_until(lambda: lab.waiting() == 0, lease + 20, "the end")
        wait_until(lambda: fairly_shared(lab, names), lease + 15, "sharing")
        assert wrong(lab, broker) == []
        assert [one.stats.dead for one in entered] == [0] * len(names)
    finally:
        for one in reversed(relays):
            one.__exit__(None, None, None)


def fairly_shared(lab: Lab, names: tuple[str, ...]) -> bool:
    each = [lab.owned_by(name) for name in names]
    return sum(each) == lab.one("SELECT COUNT(*) FROM outbox_partition") and max(each) - min(each) <= 1


def test_connections_that_are_cut_thirty_times_at_any_moment_lose_nothing(lab: Lab, broker: MemoryPublisher) -> None:
    def cut() -> None:
        dice = Random(3)
        assert sum(lab.world.cut() for _ in range(CUTS) if time.sleep(dice.random() * 0.2) is None) >= CUTS

    at_work(lab, broker, cut, "a", "b")


@pytest.mark.parametrize("database_name", ["postgres"], indirect=True)
def test_a_database_that_takes_no_writes_for_a_while_is_waited_for(lab: Lab, broker: MemoryPublisher) -> None:
    """As after a failover to a standby; on MySQL that is a setting of the whole server (fault tests)."""
    name = lab.world.engine.url.database

    def read_only() -> None:
        lab.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        lab.world.cut()
        time.sleep(1.5)  # not for a result: so long it takes no writes
        with lab.world.engine.connect() as connection:
            connection.exec_driver_sql("SET default_transaction_read_only = off")
            connection.commit()
            connection.exec_driver_sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            connection.commit()
        lab.world.cut()

    at_work(lab, broker, read_only)


def test_rows_that_a_foreign_session_keeps_locked_are_waited_for(lab: Lab, broker: MemoryPublisher) -> None:
    """Longer than the lock time-out, and longer than half a lease."""

    def lock() -> None:
        for table in ("outbox_partition", "outbox_ready"):
            with lab.world.engine.connect() as foreign:
                foreign.exec_driver_sql(f"SELECT * FROM {table} FOR UPDATE").all()
                time.sleep(1.5)  # not for a result: so long it keeps them
                foreign.rollback()

    at_work(lab, broker, lock)


def test_deadlocks_with_a_foreign_session_are_tried_again(lab: Lab, broker: MemoryPublisher) -> None:
    """It locks what waits, and then the partitions: the other way round than a relay."""

    def provoke() -> None:
        for _ in range(10):
            # It may be the victim itself.
            with suppress(DBAPIError), lab.world.engine.begin() as foreign:
                foreign.exec_driver_sql("SELECT id FROM outbox_ready FOR UPDATE").all()
                foreign.exec_driver_sql("UPDATE outbox_partition SET lease_ms = lease_ms")

    at_work(lab, broker, provoke)


EDITS = [
    "DELETE FROM outbox_partition",
    "DELETE FROM outbox_relay",
    "UPDATE outbox_partition SET owner = 'nobody', token = token + 5",
    "UPDATE outbox_partition SET nonce = 1, low_id = 0, handed_to = 0",
    "UPDATE outbox_partition SET low_id = 1000000000, handed_to = 1000000000, owner = '', token = 0",
    "UPDATE outbox_meta SET partitions = 8",
    "UPDATE outbox_meta SET partitions = 32",
    f"UPDATE outbox_meta SET partitions = {PARTITIONS}",
]


def test_the_relay_s_own_tables_edited_by_hand_lose_nothing(lab: Lab, broker: MemoryPublisher) -> None:
    """Tables emptied, owners made up, marks too high, another number of partitions: one after the other."""

    def edit() -> None:
        for sql in EDITS:
            sent = lab.sent()
            lab.execute(sql)
            wait_until(lambda sent=sent: lab.sent() > sent + 50, 15, f"going on after {sql}")

    at_work(lab, broker, edit)


def test_the_database_s_clock_jumps_by_an_hour_and_back(lab: Lab, broker: MemoryPublisher) -> None:
    """Seen from its new time, leases ended an hour ago, or end in an hour, which no relay can have written."""
    hour = "interval '1 hour'" if lab.world.is_postgres else "INTERVAL 1 HOUR"

    def jump() -> None:
        for way in "-+":
            with lab.world.engine.begin() as connection:
                connection.exec_driver_sql(f"UPDATE outbox_partition SET leased_until = leased_until {way} {hour}")
                connection.exec_driver_sql(f"UPDATE outbox_relay SET seen_until = seen_until {way} {hour}")
            sent = lab.sent()
            wait_until(lambda sent=sent: lab.sent() > sent + 50, 15, "going on")

    at_work(lab, broker, jump, "a", "b")


def test_a_relay_that_leases_rows_is_refused_beside_one_that_owns_partitions(lab: Lab, broker: MemoryPublisher) -> None:
    """PB-032, and the tables stay as they are."""
    with relay(lab.url, broker):
        wait_until(lambda: lab.owned_by("a") == PARTITIONS)
        other = Relay(RowLeaseStore(relay_engine(lab.url), relay_id="rows", lease=2.0), broker, settings(2.0))
        with pytest.raises(LeaseMismatch) as refused:
            other.run(until_empty=True)
        assert refused.value.code == "PB-032"
        lab.add("k0")
        wait_until(lambda: lab.sent() == 1)


def test_tables_of_another_version_are_refused(lab: Lab, broker: MemoryPublisher) -> None:
    lab.execute("UPDATE outbox_meta SET schema_version = 1")
    with pytest.raises(SchemaMismatch), relay(lab.url, broker):
        wait_until(lambda: not any(thread.name == "relay-a" for thread in threading.enumerate()), 10)
