"""The partition-lease relay when answers of the database are lost, or an outage meets the care after crashes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pillarbox.errors import DatabaseUnavailable
from pillarbox.event.message import Message
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Outcome, Rejected
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, RelaySettings
from pillarbox.relay.ordered import careful
from pillarbox.store.memory_ordered import MemoryPartitionStore
from pillarbox.store.memory_outbox import MemoryOutbox
from tests.sql_outbox import wait_until

MADE = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = RelaySettings(
    lease=0.5,
    broker_deadline=0.2,
    retry=RetryPolicy(base=0.2, cap=0.2, max_attempts=50, jitter=False),
    poll_max=0.02,
    due_interval=0.02,
    probe_interval=0.02,
    linger=0.02,
)
LATER = RetryPolicy(base=3.0, cap=3.0, max_attempts=50, jitter=False)


def message(number: int, key: str = "k") -> Message:
    return Message(f"e-{number}", "t", 1, None, None, key, MADE, None, "text/plain", b"x", "orders", None)


class LostAnswers:
    """While ``on``, every call of this name commits, and its answer is lost."""

    def __init__(self, of: str = "settle") -> None:
        self.of = of
        self.on = False
        self.count = 0

    def __call__(self, name: str, when: str) -> None:
        if self.on and name == self.of and when == "after":
            self.count += 1
            raise DatabaseUnavailable("the answer was lost")


def test_a_hold_whose_settlement_was_never_heard_of_is_found_again_before_anything_of_its_key_is_sent() -> None:
    outbox, lost = MemoryOutbox(), LostAnswers()
    refuses = True

    def answer(one: Message) -> Outcome | None:
        if refuses and one.event_id == "e-1":
            lost.on = True
            return Rejected("not now", permanent=False)
        return None

    publisher = MemoryPublisher(answer)
    relay = OrderedRelay(MemoryPartitionStore(outbox, relay_id="a", lease=0.5, fault=lost), publisher, SETTINGS)
    with relay.started():
        outbox.add([message(1)])
        wait_until(lambda: relay.stats.unrecorded > 0)  # tried for as long as the lease, and given up
        outbox.add([message(2)])
        refuses = lost.on = False
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})
    assert [one.event_id for one in publisher.arrived] == ["e-1", "e-2"]


def test_answers_that_are_lost_for_longer_than_the_lease_end_neither_the_run_nor_other_rounds() -> None:
    outbox, lost = MemoryOutbox(), LostAnswers()

    def answer(one: Message) -> Outcome | None:
        lost.on = one.event_id == "e-20" or lost.on
        return None

    publisher = MemoryPublisher(answer)
    relay = OrderedRelay(MemoryPartitionStore(outbox, relay_id="a", lease=0.5, fault=lost), publisher, SETTINGS)
    with relay.started():
        outbox.add([message(number, f"k{number}") for number in range(40)])
        wait_until(lambda: relay.stats.unrecorded > 0)
        lost.on, publisher.answer = False, None
        outbox.add([message(100 + number, f"k{number}") for number in range(40)])
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})


def test_what_came_due_without_the_relay_hearing_of_it_is_read_below_the_low_mark() -> None:
    outbox, lost = MemoryOutbox(), LostAnswers("move_due")
    failures = iter([Rejected("not now", permanent=False)])
    publisher = MemoryPublisher(lambda one: next(failures, None) if one.event_id == "e-1" else None)
    store = MemoryPartitionStore(outbox, relay_id="a", lease=0.5, fault=lost)
    relay = OrderedRelay(store, publisher, replace(SETTINGS, on_failure="skip", retry=LATER))
    with relay.started():
        outbox.add([message(1), message(2), message(3)])
        numbers = itertools.count(4)
        wait_until(  # the low mark moves as events come
            lambda: any(one.low_id >= 3 for one in list(relay._estate)) or not outbox.add([message(next(numbers))])
        )
        lost.on = True
        wait_until(lambda: lost.count > 0)
        lost.on = False
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})
    assert relay.stats.stragglers == 0


def test_an_outage_while_events_are_sent_alone_after_crashes_gives_nobody_up() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    outbox.add([message(1)])
    for row in outbox.tables.partitions.values():  # as so many relays left it that died with the event on its way
        row.owner, row.handed_to = "dead", 1
        row.leased_until, row.lease = datetime.now(UTC) - timedelta(seconds=1), 0.5
        row.crashes, row.careful_to = len(careful.GROUPS), 1
    publisher.down = True
    relay = OrderedRelay(MemoryPartitionStore(outbox, relay_id="a", lease=0.5), publisher, SETTINGS)
    with relay.started():
        wait_until(lambda: publisher.calls > 3 * careful.MAX_ALONE)
        assert outbox.states() == {(1, 0): "PENDING"}
        publisher.down = False
        wait_until(lambda: outbox.states() == {(1, 0): "SENT"})
