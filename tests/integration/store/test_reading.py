"""What a claim reads: within its budget of bytes, and every kind of damage reported instead of skipped."""

import pytest
from sqlalchemy import event as sqlalchemy_event

from pillarbox.event.destination import Destination
from pillarbox.store.engines import relay_engine
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.testing.conformance.store_world import all_sent, event
from tests.sql_outbox import SqlOutbox

MIB = 1_048_576


@pytest.fixture
def store(outbox: SqlOutbox) -> RowLeaseStore:
    return RowLeaseStore(relay_engine(outbox.url), relay_id="a", lease=60.0, max_bytes=MIB)


def test_a_claim_of_large_payloads_ends_with_its_budget_and_the_rest_goes_back(
    outbox: SqlOutbox, store: RowLeaseStore
) -> None:
    """A batch of 1,000 events of 1 MB each would fill the memory."""
    messages = [event(payload=bytes([n]) * 500_000, key="same") for n in range(5)]
    outbox.add(messages)
    claims = [store.claim(10) for _ in range(3)]
    assert [len(claim.deliveries) for claim in claims] == [2, 2, 1]
    assert [one.message for claim in claims for one in claim.deliveries] == messages
    assert {one.claims for claim in claims for one in claim.deliveries} == {1}
    store.close()


def test_one_event_larger_than_the_budget_is_claimed_alone(outbox: SqlOutbox, store: RowLeaseStore) -> None:
    huge = event(payload=b"x" * (MIB + 1), key="same")
    outbox.add([event(key="same"), huge, event(key="same")])
    assert [len(store.claim(10).deliveries) for _ in range(3)] == [1, 1, 1]
    store.close()


def test_a_large_payload_for_several_destinations_is_the_same_for_all(outbox: SqlOutbox, store: RowLeaseStore) -> None:
    large = event(payload=b"\0\xff" * 50_000)
    outbox.add([large], [Destination("audit"), Destination("mail")])
    assert [one.message.payload for one in store.claim(10).deliveries] == [large.payload] * 3
    store.close()


@pytest.mark.parametrize("more", ["'not json'", "'[]'", "'[[1]]'", "NULL"])
def test_a_delivery_to_a_destination_that_the_event_does_not_name_is_an_orphan(
    outbox: SqlOutbox, store: RowLeaseStore, more: str
) -> None:
    outbox.add([event(destination="orders")], [Destination("audit")])
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE outbox_event SET more_destinations = {more}")
    claim = store.claim(10)
    assert [one.message.destination for one in claim.deliveries] == ["orders"]
    assert [one.key.dest for one in claim.orphans] == [1]
    store.close()


def statements(store: RowLeaseStore) -> list[str]:
    """What the store runs from now on, but for BEGIN."""
    heard: list[str] = []

    def listen(conn: object, cursor: object, statement: str, *rest: object) -> None:
        if not statement.startswith("BEGIN"):
            heard.append(statement)

    sqlalchemy_event.listen(store._engine, "before_cursor_execute", listen)
    return heard


def test_a_batch_costs_a_handful_of_statements_however_many_events_it_has(
    outbox: SqlOutbox, store: RowLeaseStore
) -> None:
    """C048: no statement for each row, no look-up for each event."""
    outbox.add([event(key=f"key-{n}") for n in range(1_001)])
    store.claim(1)
    heard = statements(store)
    claim = store.claim(1_000)
    assert store.settle(all_sent(claim.token, claim.deliveries)).sent == 1_000
    # Find, lease, read the events; delete, name the relay, write receipts. Twice as many to find where it wraps around.
    assert len(heard) <= 8, heard
    store.close()


def test_an_idle_relay_costs_one_statement_a_look(outbox: SqlOutbox, store: RowLeaseStore) -> None:
    store.claim(100)
    heard = statements(store)
    assert not store.claim(100).deliveries
    assert len(heard) == 1, heard
    store.close()
