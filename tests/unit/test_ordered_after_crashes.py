"""A partition whose events have taken relays with them: whom its next owner charges, and whom it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from pillarbox.errors import DatabaseUnavailable
from pillarbox.event.message import Message
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Rejected
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, RelaySettings
from pillarbox.store.memory_ordered import MemoryPartitionStore
from pillarbox.store.memory_outbox import MemoryOutbox
from pillarbox.testing.conformance.store_world import event

SETTINGS = RelaySettings(
    lease=6.0,
    broker_deadline=1.0,
    retry=RetryPolicy(0.01, 0.02, 100, jitter=False),
    poll_max=0.02,
    due_interval=0.02,
    probe_interval=0.02,
    linger=0.02,
)


def of_key(count: int, key: str = "k") -> list[Message]:
    return [event(key=key)._replace(destination="orders") for _ in range(count)]


def crashed(outbox: MemoryOutbox, times: int, key: str = "k") -> None:
    """Relays died with all that there is on its way."""
    row = outbox.tables.partitions[partition_of(lane_of(key))]
    row.owner, row.crashes, row.careful_to = "", times, max(outbox.tables.events)


def relay(
    outbox: MemoryOutbox, publisher: MemoryPublisher, fault: Callable[[str, str], None] | None = None
) -> OrderedRelay:
    return OrderedRelay(MemoryPartitionStore(outbox, relay_id="a", lease=6.0, fault=fault), publisher, SETTINGS)


def eventually(condition: Callable[[], bool], seconds: float = 8.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.005)


def states(outbox: MemoryOutbox) -> list[str]:
    return [state for _, state in sorted(outbox.states().items())]


def test_an_outage_charges_no_suspect_however_often_it_is_tried_alone() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    outbox.add(of_key(3))
    crashed(outbox, 5)
    publisher.down = True
    one = relay(outbox, publisher)
    with one.started():
        eventually(lambda: publisher.calls > 10)
        publisher.down = False
        eventually(lambda: "PENDING" not in states(outbox))
    assert states(outbox) == ["SENT"] * 3


def test_a_database_that_comes_and_goes_charges_a_suspect_once() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    outbox.add(of_key(3))
    crashed(outbox, 5)
    left = 10

    def fault(name: str, when: str) -> None:
        nonlocal left
        if name == "settle" and when == "before" and left:
            left -= 1
            raise DatabaseUnavailable("away")

    with relay(outbox, publisher, fault).started():
        eventually(lambda: "PENDING" not in states(outbox))
    assert states(outbox) == ["SENT"] * 3


def test_an_event_that_is_given_up_stays_given_up_when_the_database_is_away_for_a_moment() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    outbox.add(of_key(1))
    crashed(outbox, 5)
    outbox.tables.ready[min(outbox.tables.ready)].claims = 3
    left = 2

    def fault(name: str, when: str) -> None:
        nonlocal left
        if name == "settle" and when == "before" and left:
            left -= 1
            raise DatabaseUnavailable("away")

    with relay(outbox, publisher, fault).started():
        eventually(lambda: "PENDING" not in states(outbox))
    assert states(outbox) == ["DEAD"]
    assert publisher.arrived == []


def test_a_relay_that_leaves_is_not_registered_again_by_its_own_renewals() -> None:
    outbox = MemoryOutbox()

    def fault(name: str, when: str) -> None:
        if name == "leave" and when == "after":
            one._keeper.renew_now()
            time.sleep(0.1)  # long enough for a renewal, if there still was one

    one = relay(outbox, MemoryPublisher(), fault)
    with one.started():
        eventually(lambda: len(outbox.tables.relays) == 1)
    assert outbox.tables.relays == {}


@pytest.mark.parametrize("successors", [0, 1, 4])
def test_what_waits_behind_a_parked_event_that_is_given_up_stays_held(successors: int) -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    head, *rest = of_key(1 + successors)
    outbox.add([head, *rest])
    publisher.answer = lambda one: Rejected("not yet", permanent=False) if one.event_id == head.event_id else None
    first = relay(outbox, publisher)
    with first.started():
        eventually(lambda: states(outbox) == ["RETRY"] + ["HELD"] * successors)
    assert publisher.arrived == []

    crashed(outbox, 5)
    outbox.tables.parked[min(outbox.tables.parked)].claims = 3
    for hold in outbox.tables.holds.values():  # it was tried, and so it is still due
        hold.due_at = datetime(2026, 1, 1, tzinfo=UTC)
    publisher.answer = None
    with relay(outbox, publisher).started():
        eventually(lambda: "DEAD" in states(outbox))
        newcomer = of_key(1)
        outbox.add(newcomer)
        eventually(lambda: "PENDING" not in states(outbox))
    assert states(outbox) == ["DEAD"] + ["HELD"] * (successors + 1)
    assert publisher.arrived == []


def test_care_ends_when_so_many_were_sent_alone_that_none_of_them_can_be_the_culprit() -> None:
    """Others wait for their turn to be careful: a backlog is not sent one by one for ever."""
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    outbox.add(of_key(900))
    crashed(outbox, 6)
    OrderedRelay(MemoryPartitionStore(outbox, relay_id="a", lease=6.0), publisher, SETTINGS).run(until_empty=True)
    assert len(publisher.arrived) == 900
    assert 500 <= publisher.calls <= 510
