"""``keep = 0``: events that go in the transaction that settles them."""

import threading

import pytest
from sqlalchemy import Connection

from pillarbox.event.destination import Topic
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, RelaySettings
from pillarbox.store.capabilities import detect
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore
from pillarbox.store.prune.settling import remove_sent
from pillarbox.store.prune.words import words_of
from pillarbox.testing.conformance.store_world import event
from tests.integration.prune.mixture import event_ids, receipt_ids
from tests.servers import DATABASES
from tests.sql_outbox import SqlOutbox


def settle(connection: Connection, sent: list[tuple[int, int]]) -> set[int]:
    """As a store would: ready rows first, then what can go at once, then receipts for the rest."""
    for number, dest in sent:
        connection.exec_driver_sql(f"DELETE FROM outbox_ready WHERE id = {number} AND dest = {dest}")
    gone = remove_sent(connection, words_of(detect(connection)), sent, 16)
    for number, dest in sent:
        if number not in gone:
            connection.exec_driver_sql(
                "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token)"
                f" VALUES ({number}, {dest}, '2026-01-01', 'r', 1)"
            )
    return gone


def add(outbox: SqlOutbox, *widths: int) -> list[int]:
    return [
        number for width in widths for number in outbox.add([event()], [Topic(f"more-{n}") for n in range(1, width)])
    ]


def test_an_event_goes_with_its_settlement_and_the_highest_id_stays(outbox: SqlOutbox) -> None:
    ids = add(outbox, 1, 1, 1)
    with outbox.engine.begin() as connection:
        assert settle(connection, [(number, 0) for number in ids]) == set(ids[:2])
    assert event_ids(outbox) == receipt_ids(outbox) == {ids[2]}


def test_an_event_goes_with_its_last_delivery_only(outbox: SqlOutbox) -> None:
    first, second, _ = add(outbox, 3, 2, 1)
    with outbox.engine.begin() as connection:
        assert settle(connection, [(first, 0), (first, 2), (second, 0), (second, 1)]) == {second}
    assert receipt_ids(outbox) == {first}
    with outbox.engine.begin() as connection:
        assert settle(connection, [(first, 1)]) == {first}
    assert receipt_ids(outbox) == set()


@pytest.mark.parametrize("state", ["RETRY", "HELD", "DEAD"])
def test_an_event_with_another_delivery_parked_stays(outbox: SqlOutbox, state: str) -> None:
    first, _ = add(outbox, 2, 1)
    with outbox.engine.begin() as connection:
        connection.exec_driver_sql(f"DELETE FROM outbox_ready WHERE id = {first} AND dest = 1")
        connection.exec_driver_sql(
            "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, attempts, error, error_at)"
            f" VALUES (0, 1, {first}, 1, '{state}', 1, '', '2026-01-01')"
        )
        assert settle(connection, [(first, 0)]) == set()
    assert first in event_ids(outbox)


def test_what_is_rolled_back_is_still_there(outbox: SqlOutbox) -> None:
    ids = add(outbox, 1, 1)
    with outbox.engine.connect() as connection:
        assert settle(connection, [(ids[0], 0)]) == {ids[0]}
        connection.rollback()
    assert event_ids(outbox) == set(ids)
    assert len(outbox.states()) == 2


@pytest.mark.services
@pytest.mark.parametrize("shared_outbox", DATABASES, indirect=True)
def test_two_deliveries_settled_at_once_by_two_relays_leave_no_event_behind_unsent(outbox: SqlOutbox) -> None:
    """The second one waits, or leaves the event with both receipts to a pruner; it is never taken half sent."""
    first, _ = add(outbox, 2, 1)
    gone: list[set[int]] = []

    def second() -> None:
        with outbox.engine.begin() as connection:
            gone.append(settle(connection, [(first, 1)]))

    with outbox.engine.begin() as connection:
        assert settle(connection, [(first, 0)]) == set()
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
    thread.join(10)
    assert not any(number == first and state != "SENT" for (number, _), state in outbox.states().items())
    if gone == [{first}]:
        assert first not in event_ids(outbox)
    else:
        assert first in event_ids(outbox)
        assert {key for key in outbox.receipts() if key[0] == first} == {(first, 0), (first, 1)}


def test_a_relay_that_keeps_nothing_leaves_the_highest_id_alone(outbox: SqlOutbox) -> None:
    """Through the relay itself: events with one destination and with several go with their settlement."""
    ids = add(outbox, *[1] * 20, 2, 3, 1)
    publisher = MemoryPublisher()
    store = PartitionStore(relay_engine(outbox.url), relay_id="keeps-nothing", lease=10.0, keep_sent=False)
    OrderedRelay(store, publisher, RelaySettings(lease=10.0, broker_deadline=2.0)).run(until_empty=True)
    assert len(publisher.arrived) == 26
    assert event_ids(outbox) == receipt_ids(outbox) == {ids[-1]}
