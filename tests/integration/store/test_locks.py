"""What a claim locks, and for how long. SQLite has one lock for everything and is left out."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine

from pillarbox.store import write
from pillarbox.store.capabilities import detect
from pillarbox.store.claim import Wanted, strategy
from pillarbox.store.workrows import Fence
from pillarbox.testing.conformance.store_world import all_sent, event
from tests.servers import DATABASES
from tests.sql_outbox import SqlOutbox, wait_until

pytestmark = pytest.mark.services
each_server = pytest.mark.parametrize("shared_outbox", DATABASES, indirect=True)
with_skip_locked = pytest.mark.parametrize("shared_outbox", ["postgres", "mysql", "mariadb"], indirect=True)
without_skip_locked = pytest.mark.parametrize("shared_outbox", ["mysql57", "mariadb102"], indirect=True)
WANTED = Wanted(Fence("relay", 1), 60.0, 0, 20)


@pytest.fixture
def business(outbox: SqlOutbox) -> Iterator[Engine]:
    """The application's engine: REPEATABLE READ, and a wait for a lock is a failure after one second."""
    engine = create_engine(outbox.url, isolation_level="REPEATABLE READ")
    yield engine
    engine.dispose()


def one_second(outbox: SqlOutbox) -> str:
    return "SET lock_timeout = '1s'" if outbox.dialect == "postgresql" else "SET SESSION innodb_lock_wait_timeout = 1"


@each_server
@pytest.mark.parametrize("limit", [20, 1_000], ids=["some-rows", "to-the-end-of-the-table"])
@pytest.mark.parametrize("start", [0, 7])
def test_a_business_insert_never_waits_for_a_claim(outbox: SqlOutbox, business: Engine, limit: int, start: int) -> None:
    """C042, C043: no gap is locked, not even while the claim's transaction is open."""
    outbox.add([event(key=f"key-{n}") for n in range(100)])
    with outbox.engine.connect() as relay:
        claiming = strategy(detect(relay).claim)
        wanted = WANTED._replace(limit=limit, start=start)
        taken = len(claiming.claim(relay, wanted))
        assert taken == min(limit, 100) or (claiming.one_range and 0 < taken < limit)
        with business.begin() as application:
            application.exec_driver_sql(one_second(outbox))
            write.insert(application, [write.row_of(event(key=f"new-{n}")) for n in range(100)])
        relay.rollback()
    assert len(outbox.states()) == 200


@each_server
def test_an_open_business_transaction_never_holds_up_a_claim(outbox: SqlOutbox, business: Engine) -> None:
    """C015: what is not committed is passed over, not waited for."""
    outbox.add([event(key=f"key-{n}") for n in range(50)])
    with business.connect() as application:
        write.insert(application, [write.row_of(event(key=f"open-{n}")) for n in range(50)])
        outbox.add([event(key=f"later-{n}") for n in range(50)])
        begun = time.monotonic()
        claim = outbox.store("a").claim(1_000)
        assert time.monotonic() - begun < 3
        assert len(claim.deliveries) == 100
        application.commit()
    assert len(outbox.store("b").claim(1_000).deliveries) == 50


@each_server
def test_a_claim_holds_no_lock_after_it_returned(outbox: SqlOutbox, business: Engine) -> None:
    """C044: the claim is committed before anything is sent."""
    outbox.add([event(key=f"key-{n}") for n in range(50)])
    store = outbox.store("a")
    claim = store.claim(50)
    with business.begin() as other:
        other.exec_driver_sql(one_second(outbox))
        for table in ("outbox_ready", "outbox_event"):
            assert other.exec_driver_sql(f"SELECT id FROM {table} FOR UPDATE").fetchall()
    assert store.settle(all_sent(claim.token, claim.deliveries)).sent == 50


@with_skip_locked
def test_a_second_relay_proceeds_with_other_rows_while_a_claim_is_open(outbox: SqlOutbox) -> None:
    outbox.add([event(key=f"key-{n}") for n in range(100)])
    with outbox.engine.connect() as relay:
        first = strategy(detect(relay).claim).claim(relay, WANTED)
        second = outbox.store("b").claim(100)
        assert (len(first), len(second.deliveries)) == (20, 80)
        relay.rollback()


@without_skip_locked
def test_a_second_relay_waits_for_an_open_claim_and_takes_what_is_left(outbox: SqlOutbox) -> None:
    outbox.add([event(key=f"key-{n}") for n in range(100)])
    with ThreadPoolExecutor(1) as pool, outbox.engine.connect() as relay:
        first = strategy(detect(relay).claim).claim(relay, WANTED)
        second = pool.submit(outbox.store("b").claim, 100)
        wait_until(lambda: is_waiting(outbox))
        relay.commit()
        assert (len(first), len(second.result(10).deliveries)) == (20, 80)


def is_waiting(outbox: SqlOutbox) -> bool:
    with outbox.engine.connect() as connection:
        sql = (
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'UPDATE outbox_ready%%'"
        )
        return connection.exec_driver_sql(sql).first() is not None
