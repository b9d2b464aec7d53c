"""A relay that was told to end waits for an absent broker as long as it may; what repeats is said once a minute."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from pillarbox.errors import BrokerUnavailable
from pillarbox.ports import Rejected
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, Relay
from pillarbox.relay.repeats import MOST, SECONDS, Repeats
from pillarbox.store.memory import MemoryStore
from pillarbox.store.memory_ordered import MemoryPartitionStore
from pillarbox.store.memory_outbox import MemoryOutbox
from tests.unit.test_ordered_relay import eventually, message, messages, relay, running, settings

AnyRelay = OrderedRelay | Relay
Make = Callable[[MemoryOutbox, MemoryPublisher], AnyRelay]


def by_rows(outbox: MemoryOutbox, publisher: MemoryPublisher) -> AnyRelay:
    store = MemoryStore(relay_id="rows")
    for one in messages(3, 1):
        store.add(one)
    return Relay(store, publisher, settings())


def by_partitions(outbox: MemoryOutbox, publisher: MemoryPublisher) -> AnyRelay:
    outbox.add(messages(3, 1))
    return OrderedRelay(MemoryPartitionStore(outbox, relay_id="a", lease=3.0), publisher, settings())


@pytest.mark.parametrize("make", [by_rows, by_partitions])
def test_a_drain_without_its_broker_ends_with_an_error_when_its_patience_is_over(make: Make) -> None:
    publisher = MemoryPublisher()
    publisher.down = True
    draining = make(MemoryOutbox(), publisher)
    with pytest.raises(BrokerUnavailable, match="out of reach for 0 s; what is left waits in the outbox"):
        draining.run(until_empty=True, patience=0.3)
    assert draining.stats.outages == 1
    assert draining.stats.dead == 0


@pytest.mark.parametrize("make", [by_rows, by_partitions])
def test_a_broker_that_comes_back_in_time_is_all_that_is_needed(make: Make) -> None:
    publisher = MemoryPublisher()
    publisher.down = True
    draining = make(MemoryOutbox(), publisher)
    back = threading.Timer(0.2, lambda: setattr(publisher, "down", False))
    back.start()
    draining.run(until_empty=True, patience=20)
    back.join()
    assert len(publisher.arrived) == 3


def test_what_repeats_is_said_once_a_minute_with_the_number_of_what_was_not_said() -> None:
    repeats = Repeats()
    assert [repeats.due("x", float(now)) for now in (0, 1, 2, 3)] == [0, None, None, None]
    assert repeats.due("y", 3.0) == 0, "another thing is said at once"
    assert repeats.due("x", SECONDS) == 3
    assert repeats.due("x", 2 * SECONDS) == 0


def test_as_many_different_things_as_there_may_be_cost_no_more_memory() -> None:
    repeats = Repeats()
    for number in range(3 * MOST):
        assert repeats.due(number, 1.0) == 0
    assert len(repeats._said) <= MOST


def test_a_missing_exchange_is_one_line_and_not_one_for_each_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pillarbox.relay")
    outbox = MemoryOutbox()
    outbox.add([message(f"k{number}", number) for number in range(20)] + [message("other", 99, "payments")])
    publisher = MemoryPublisher(lambda one: Rejected(f"no exchange {one.destination!r}", permanent=False))
    with running(working := relay(outbox, publisher)):
        eventually(lambda: working.stats.retried >= 21)
    said = [one.getMessage() for one in caplog.records if ": RETRY, " in one.getMessage()]
    assert sorted(one.split(" for ")[1].split(":")[0] for one in said) == ["'orders'", "'payments'"]
