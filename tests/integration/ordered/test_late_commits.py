"""Transactions that commit later than they drew ids, or never: all that is committed is sent, in order."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection

from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay
from pillarbox.store import write
from pillarbox.testing.conformance.store_world import event
from tests.crash.ordered_lab import Lab, wait_until
from tests.integration.ordered.working import out_of_order, relay, wrong

CYCLES = 2.0  # seconds; a low mark needs about 0.8


def add(connection: Connection, key: str, count: int = 1) -> None:
    write.insert(connection, [write.row_of(event(key=key, destination="orders")) for _ in range(count)])


@contextmanager
def steady(lab: Lab) -> Iterator[None]:
    """Other keys' events all the time, so that low marks rise."""
    with lab.load(0.02):
        yield


def marks_rise(lab: Lab) -> Callable[[], bool]:
    """Whether the low marks have risen since now."""
    before = int(lab.one("SELECT SUM(low_id) FROM outbox_partition"))
    return lambda: int(lab.one("SELECT SUM(low_id) FROM outbox_partition")) > before


def end(lab: Lab, one: OrderedRelay, broker: MemoryPublisher) -> None:
    """All is sent, nothing had to be swept up, and the order held."""
    wait_until(lambda: lab.waiting() == 0, 20, "the end")
    assert wrong(lab, broker) == []
    assert one.stats.stragglers == 0


def test_the_trap_of_5_7_and_8(lab: Lab, broker: MemoryPublisher) -> None:
    """C012: 5 is drawn, 7 of another key is committed and sent, 5 is committed, then 8 of its key."""
    with relay(lab.url, broker) as one:
        for _ in range(5):
            sent = len(broker.arrived)
            with lab.world.engine.begin() as connection:
                add(connection, "k")
                lab.add("other")
                wait_until(lambda sent=sent: len(broker.arrived) > sent)
            lab.add("k")
        end(lab, one, broker)


def test_transactions_that_stay_open_for_several_cycles_hold_up_nobody_and_lose_nothing(
    lab: Lab, broker: MemoryPublisher
) -> None:
    """C012: one ends with a commit, one with a rollback; meanwhile the others go on."""
    with relay(lab.url, broker) as one:
        with steady(lab), lab.world.engine.connect() as late, lab.world.engine.connect() as withdrawn:
            wait_until(lambda: one.stats.sent > 20)
            add(late, "late", 3)
            add(withdrawn, "late", 3)
            sent = one.stats.sent
            time.sleep(CYCLES)  # not for a result: so long it has to stay open
            assert one.stats.sent > sent + 20
            withdrawn.rollback()
            late.commit()
            lab.add("late")
            if lab.world.is_postgres:  # on MySQL, other tests' transactions on this server hold up the mark
                wait_until(marks_rise(lab), 10, "the low mark")
        end(lab, one, broker)
    assert sum(message.key == "late" for message in broker.arrived) == 4


@pytest.mark.parametrize("database_name", ["postgres"], indirect=True)
def test_ids_that_sessions_draw_fifty_at_once_lose_nothing(lab: Lab, broker: MemoryPublisher) -> None:
    """C014: no order is promised then (docs/ordering.md), but nothing may be missing."""
    lab.execute("ALTER SEQUENCE outbox_event_id_seq CACHE 50")
    with relay(lab.url, broker) as one:
        with lab.world._writers.connect() as first, lab.world._writers.connect() as second:
            for _ in range(60):
                for connection in (second, first):
                    add(connection, "k")
                    connection.commit()
            add(first, "k")  # a low id, committed when much higher ones are sent and the mark is above it
            wait_until(lambda: one.stats.sent >= 120)
            first.commit()
        wait_until(lambda: lab.waiting() == 0, 20, "the end")
        ids = {one.event_id for one in broker.arrived}
        assert len(ids) == 121 == lab.sent()
    print("out of order, as documented:", bool(out_of_order(lab, broker.arrived)))


def test_a_foreign_transaction_that_stays_open_holds_up_nothing(lab: Lab, broker: MemoryPublisher) -> None:
    """C015: it wrote to another table of the same database, and then sleeps for as long as the test takes."""
    lab.execute("CREATE TABLE business (id INT PRIMARY KEY, note VARCHAR(20))")
    with lab.world.engine.connect() as foreign:
        foreign.exec_driver_sql("INSERT INTO business VALUES (1, 'open')")
        with relay(lab.url, broker) as one:
            with steady(lab):
                for _ in range(5):
                    sent = one.stats.sent
                    took = wait_until(lambda sent=sent: one.stats.sent > sent + 20, 5, "delivery")
                    assert took < 5
                if lab.world.is_postgres:
                    wait_until(marks_rise(lab), 10, "the low mark")
            end(lab, one, broker)
        foreign.rollback()


def test_a_prepared_transaction_is_found_when_it_is_committed(lab: Lab, broker: MemoryPublisher) -> None:
    """Its session is gone for a while; nobody but the coordinator can end it."""
    if lab.world.is_postgres and int(lab.one("SHOW max_prepared_transactions")) == 0:
        pytest.skip("max_prepared_transactions is 0")
    with relay(lab.url, broker) as one:
        with steady(lab):
            wait_until(lambda: one.stats.sent > 20)
            with prepared(lab):
                sent = one.stats.sent
                time.sleep(CYCLES)  # not for a result: so long it has to stay prepared
                assert one.stats.sent > sent + 20
            lab.add("late")
        end(lab, one, broker)
    assert sum(message.key == "late" for message in broker.arrived) == 2


@contextmanager
def prepared(lab: Lab) -> Iterator[None]:
    """An event of a prepared transaction, which is committed at the end whatever happens: else it would stay."""
    name = f"'{lab.world.engine.url.database}'"
    before = ("BEGIN", f"PREPARE TRANSACTION {name}", f"COMMIT PREPARED {name}")
    if not lab.world.is_postgres:
        before = (f"XA START {name}", f"XA END {name}; XA PREPARE {name}", f"XA COMMIT {name}")
    begin, prepare, commit = before
    autocommit = lab.world.engine.execution_options(isolation_level="AUTOCOMMIT")
    with autocommit.connect() as connection:
        connection.exec_driver_sql(begin)
        add(connection, "late")
        for statement in prepare.split("; "):
            connection.exec_driver_sql(statement)
        connection.invalidate()
    try:
        yield
    finally:
        with autocommit.connect() as connection:
            connection.exec_driver_sql(commit)
