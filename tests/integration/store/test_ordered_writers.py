"""Who counts as a writer of events, on servers with transactions of others open (C014, C015)."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from pillarbox.errors import LeaseMismatch
from pillarbox.ports import Span
from pillarbox.store import write
from pillarbox.testing.conformance.ordered_store_world import OrderedWorld, hold_on, set_aside
from pillarbox.testing.conformance.store_world import event
from tests.servers import DATABASES, fresh_database
from tests.services_fixtures import _need
from tests.sql_ordered import OrderedOutbox

pytestmark = pytest.mark.services


@pytest.fixture(scope="module", params=DATABASES)
def shared(request: pytest.FixtureRequest) -> Iterator[OrderedOutbox]:
    with fresh_database(_need(request, request.param).url) as url:
        outbox = OrderedOutbox(url)
        with outbox.engine.begin() as connection:
            connection.execute(text("CREATE TABLE business (id INT PRIMARY KEY)"))
        yield outbox
        outbox.close()


@pytest.fixture
def outbox(shared: OrderedOutbox) -> OrderedOutbox:
    shared.empty()
    return shared


def eventually(look: Callable[[], Any], condition: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 5.0
    while not condition(found := look()):
        assert time.monotonic() < deadline, f"still {found} after 5 s"
        time.sleep(0.02)
    return found


def test_a_transaction_that_only_reads_is_no_writer(outbox: OrderedOutbox) -> None:
    """C015: neither is one that never touched the outbox."""
    if outbox.dialect != "postgresql":
        pytest.skip("this server lists the transactions of all databases: those of other tests, too")
    relay = OrderedWorld(outbox).relay()
    with outbox.engine.connect() as other:
        other.execute(text("SELECT COUNT(*) FROM outbox_event")).all()
        other.execute(text("INSERT INTO business VALUES (1)"))
        assert relay.store.writers() == frozenset()


def test_a_writer_keeps_a_name_until_its_transaction_ends_also_when_prepared(outbox: OrderedOutbox) -> None:
    """C014."""
    relay = OrderedWorld(outbox).relay()
    relay.acquire()
    engine = create_engine(outbox.url, isolation_level="AUTOCOMMIT")
    postgres = outbox.dialect == "postgresql"
    begin, end, prepare, commit = (
        (["BEGIN"], [], "PREPARE TRANSACTION 'late'", "COMMIT PREPARED 'late'")
        if postgres
        else (["XA START 'late'"], ["XA END 'late'"], "XA PREPARE 'late'", "XA COMMIT 'late'")
    )
    with engine.connect() as writer:
        others = relay.store.writers() or frozenset()
        time.sleep(0 if postgres else 1.1)  # MySQL names a transaction by the second in which it began
        for sql in begin:
            writer.exec_driver_sql(sql)
        write.insert(writer, [write.row_of(event(key="k"))])
        named = eventually(relay.store.writers, lambda found: (found or frozenset()) - others) - others
        for sql in end:
            writer.exec_driver_sql(sql)
        try:
            writer.exec_driver_sql(prepare)
        except DBAPIError as error:
            engine.dispose()
            pytest.skip(f"this server prepares no transactions: {error.orig}")
        assert eventually(relay.store.writers, lambda found: (found or frozenset()) & named)
        assert relay.read() == []
        writer.exec_driver_sql(commit)
    engine.dispose()
    eventually(relay.store.writers, lambda found: found is not None and named.isdisjoint(found))
    assert len(relay.read()) == 1


def test_a_list_of_transactions_that_others_keep_stale_is_not_believed(outbox: OrderedOutbox) -> None:
    """InnoDB makes the list anew only when nobody read it for 0.1 s; who reads it more often gets the old one."""
    if outbox.dialect == "postgresql":
        pytest.skip("PostgreSQL keeps no such list")
    relay = OrderedWorld(outbox).relay()
    with outbox.engine.connect() as other, outbox.engine.connect() as writer:
        look = text("SELECT COUNT(*) FROM information_schema.innodb_trx")
        store = relay.store
        store._writers._pause = lambda seconds: other.execute(look).all()  # type: ignore[attr-defined]
        other.execute(look).all()
        write.insert(writer, [write.row_of(event(key="k"))])
        other.execute(look).all()
        found = store.writers()
        assert found is None or found
        writer.rollback()


def test_the_tables_change_hands_only_when_no_relay_of_the_other_kind_lives(outbox: OrderedOutbox) -> None:
    world = OrderedWorld(outbox)
    world.add(3, key="k")
    rows = outbox.store("row-relay")
    claim = rows.claim(1)
    assert len(claim.deliveries) == 1
    with pytest.raises(LeaseMismatch):
        world.relay("a")
    rows.close()
    impatient = outbox.ordered_store("b", lease=0.01)
    with pytest.raises(LeaseMismatch):  # what the row relay claimed is still leased
        impatient.enter(60.0)
    outbox.pass_time(61)
    relay = world.relay("a")
    relay.acquire()
    first, second, third = relay.read()
    relay.settle(
        aside=[set_aside(first, "DEAD"), set_aside(second, "HELD"), set_aside(third, "HELD")],
        holds=[hold_on(first, "dead")],
    )
    with pytest.raises(LeaseMismatch):
        rows.claim(1)
    relay.store.leave()
    assert rows.claim(1).deliveries == ()
    assert world.states() == ["DEAD", "RETRY", "RETRY"]
    assert rows.move_due(10) == 2
    assert len(rows.claim(10).deliveries) == 2
    with pytest.raises(LeaseMismatch):
        relay.store.stay(60.0, relay.tenures)
    with pytest.raises(LeaseMismatch):
        relay.acquire()
    assert relay.store.signs([Span(0, 0)]).relays == 0
    rows.close()
