"""The partition-lease relay when answers of the database are lost, or an outage meets the care after crashes."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pillarbox.errors import DatabaseUnavailable, LeaseMismatch
from pillarbox.event.message import Message
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Outcome, Rejected, Unavailable
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, RelaySettings
from pillarbox.relay.ordered import careful
from pillarbox.relay.ordered.rounds import Round
from pillarbox.relay.ordered.sender import Sender
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


class Calls:
    """Counts the calls of each name; ``before`` and ``after`` say what a name does then."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}

    def __call__(self, name: str, when: str) -> None:
        self.count[name] += when == "before"
        (self.before if when == "before" else self.after).get(name, lambda: None)()


def raises(error: Exception) -> Callable[[], None]:
    def do() -> None:
        raise error

    return do


def relay_on(outbox: MemoryOutbox, publisher: MemoryPublisher, calls: Calls, name: str = "a") -> OrderedRelay:
    return OrderedRelay(MemoryPartitionStore(outbox, relay_id=name, lease=0.5, fault=calls), publisher, SETTINGS)


def dead_head(outbox: MemoryOutbox) -> None:
    """Event 1 is dead, 2 and 3 wait behind it, and nobody owns anything."""
    publisher = MemoryPublisher(lambda one: Rejected("no", permanent=True) if one.event_id == "e-1" else None)
    with relay_on(outbox, publisher, Calls(), "before").started():
        outbox.add([message(number) for number in (1, 2, 3)])
        wait_until(lambda: sorted(outbox.states().values()) == ["DEAD", "HELD", "HELD"])


def test_a_parked_event_that_somebody_deleted_is_dead_and_keeps_nobody_busy() -> None:
    outbox, calls = MemoryOutbox(), Calls()
    dead_head(outbox)
    outbox.forget_event(2)
    outbox.replay(1)
    with relay_on(outbox, MemoryPublisher(), calls).started():
        wait_until(lambda: sorted(outbox.states().values()) == ["DEAD", "SENT", "SENT"])
        wait_until(lambda: not outbox.tables.holds)
        before = calls.count["settle"]
        time.sleep(0.2)
        assert calls.count["settle"] <= before + 1


def test_a_partition_lost_before_its_parked_events_are_sent_ends_no_relay() -> None:
    outbox, calls = MemoryOutbox(), Calls()
    dead_head(outbox)
    outbox.replay(1)

    def another_relay_takes_over() -> None:
        calls.after.clear()
        for row in outbox.tables.partitions.values():
            row.token, row.leased_until = row.token + 1, datetime.now(UTC) - timedelta(seconds=1)

    calls.after["read_parked"] = another_relay_takes_over
    with relay_on(outbox, MemoryPublisher(), calls).started():
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})


@pytest.mark.parametrize("error", [LeaseMismatch("switched over"), RuntimeError("a bug")], ids=["switched", "bug"])
def test_leases_that_are_renewed_no_more_end_the_relay(error: Exception) -> None:
    calls = Calls()
    calls.before["stay"] = raises(error)
    relay = relay_on(MemoryOutbox(), MemoryPublisher(), calls)
    with pytest.raises(type(error)):
        relay.run()
    assert not relay.health().live


def test_a_relay_is_not_ready_for_as_long_as_the_database_is_away() -> None:
    outbox, calls, publisher = MemoryOutbox(), Calls(), MemoryPublisher()
    relay = relay_on(outbox, publisher, calls)
    with relay.started():
        wait_until(lambda: relay.health().ready)
        calls.before.update(dict.fromkeys(("stay", "signs", "fleet", "read"), raises(DatabaseUnavailable("away"))))
        wait_until(lambda: not relay.health().ready)
        for _ in range(40):
            time.sleep(0.005)
            assert not relay.health().ready
        calls.before.clear()
        wait_until(lambda: relay.health().ready)


def test_a_relay_is_not_ready_while_it_cannot_record_what_it_sent() -> None:
    outbox, calls, publisher = MemoryOutbox(), Calls(), MemoryPublisher()
    relay = relay_on(outbox, publisher, calls)

    def answer(_: Message) -> None:
        calls.before["settle"] = raises(DatabaseUnavailable("away"))

    publisher.answer = answer
    with relay.started():
        wait_until(lambda: relay.health().ready)
        outbox.add([message(1)])
        wait_until(lambda: not relay.health().ready)
        publisher.answer = None
        calls.before.clear()
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})


def test_a_relay_that_has_left_sends_nothing_of_what_waited_behind_a_broker_that_did_not_answer() -> None:
    outbox, answers = MemoryOutbox(), threading.Event()
    tried: list[str] = []

    def answer(one: Message) -> Outcome | None:
        tried.append(one.event_id)
        answers.wait(10)
        return None

    outbox.add([message(1, key_of(0)), message(2, key_of(1))])
    store = MemoryPartitionStore(outbox, relay_id="a", lease=SETTINGS.lease)
    relay = OrderedRelay(store, MemoryPublisher(answer), replace(SETTINGS, batch=1))
    with relay.started():
        wait_until(lambda: relay._sender.under_way == 2)
    assert not any(row.owner for row in outbox.tables.partitions.values()), "it has given them up"
    answers.set()
    relay._sender._thread.join(5)
    assert tried == ["e-1"]


def test_what_was_confirmed_before_a_publisher_broke_is_recorded_before_the_relay_ends() -> None:
    class Breaks(MemoryPublisher):
        def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
            if self.calls:
                raise RuntimeError("a defect")
            return super().publish_in_order(messages)

    sender = Sender(Breaks())
    first = Round({}, [])
    sender.submit(first)
    sender.submit(Round({}, []))
    sender.start()
    sender._thread.join(5)
    assert [one.round for one in sender.take(1)] == [first]
    with pytest.raises(RuntimeError, match="a defect"):
        sender.take(1)


def test_one_look_ends_the_care_for_all_partitions_with_nothing_left_of_a_crash() -> None:
    outbox, calls = MemoryOutbox(), Calls()
    outbox.add([message(number, f"k{number}") for number in range(100)])
    relay_on(outbox, MemoryPublisher(), calls, "before").run(until_empty=True)
    for row in outbox.tables.partitions.values():
        row.owner, row.handed_to, row.leased_until = "dead", 50_000, datetime.now(UTC) - timedelta(seconds=1)
    relay = relay_on(outbox, MemoryPublisher(), calls)
    with relay.started():
        wait_until(lambda: relay.stats.crashes_seen == len(outbox.tables.partitions))
        outbox.add([message(1_000, "k0")])
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})
        assert not any(one.is_careful for one in relay._estate)


def test_dead_events_without_a_key_hold_nothing_and_go_again_when_they_are_replayed() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher(lambda _: Rejected("no", permanent=True))
    relay = relay_on(outbox, publisher, Calls())
    with relay.started():
        outbox.add([message(number)._replace(key=None) for number in range(20)])
        wait_until(lambda: set(outbox.states().values()) == {"DEAD"})
        assert not outbox.tables.holds
        assert relay.health().details["held_streams"] == 0
        publisher.answer = None
        for number, dest in outbox.states():
            outbox.replay(number, dest)
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})


def test_attempts_keep_their_distance_while_a_destination_recovers_though_failed_ones_are_skipped() -> None:
    outbox, well = MemoryOutbox(), threading.Event()
    tries: list[float] = []

    def answer(one: Message) -> Outcome | None:
        if not well.is_set():
            return Unavailable("no leader", broker_answers=True)
        if one.event_id == "e-1":
            tries.append(time.monotonic())
            return Rejected("busy", permanent=False)
        return None

    store = MemoryPartitionStore(outbox, relay_id="a", lease=5.0)
    slow = replace(SETTINGS, on_failure="skip", retry=replace(LATER, base=0.2, cap=0.2))
    with OrderedRelay(store, MemoryPublisher(answer), slow).started():
        outbox.add([message(1), message(2)])
        wait_until(lambda: bool(outbox.tables.holds))
        well.set()
        wait_until(lambda: len(tries) >= 3)
    assert min(later - earlier for earlier, later in itertools.pairwise(tries)) > 0.15


def test_a_transaction_that_stays_open_costs_an_idle_relay_hardly_anything() -> None:
    outbox, calls = MemoryOutbox(), Calls()
    late = outbox.begin()
    late.add([message(0)])
    with relay_on(outbox, MemoryPublisher(), calls).started() as relay:
        numbers = itertools.count(1)
        wait_until(lambda: relay._duties._marks.waiting or not outbox.add([message(next(numbers))]))
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})
        time.sleep(0.1)
        before, looks = calls.count["writers"], calls.count["signs"]
        wait_until(lambda: calls.count["signs"] > looks + 20)
        assert calls.count["writers"] <= before + 1
        late.commit()


def key_of(partition: int, place: int = 0) -> str:
    found = (key for key in map(str, itertools.count()) if partition_of(lane_of(key)) == partition)
    return next(itertools.islice(found, place, None))


def test_partitions_take_turns_when_parked_events_of_several_go_again() -> None:
    outbox = MemoryOutbox()
    publisher = MemoryPublisher(lambda one: Rejected("no", True) if one.event_id in ("e-0", "e-1000") else None)
    with relay_on(outbox, publisher, Calls(), "before").started():
        long, *_ = outbox.add([message(number, key_of(0)) for number in range(500)])
        (short,) = outbox.add([message(1_000, key_of(1))])
        wait_until(lambda: set(outbox.states().values()) == {"HELD", "DEAD"})
    publisher.answer = None
    outbox.replay(long)
    outbox.replay(short)
    outbox.add([message(number, key_of(2)) for number in range(2_000, 3_000)])
    store = MemoryPartitionStore(outbox, relay_id="a", lease=5.0)
    with OrderedRelay(store, publisher, replace(SETTINGS, batch=10)).started():
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})
    arrived = [one.event_id for one in publisher.arrived]
    assert arrived.index("e-1000") < arrived.index("e-250")


def test_a_long_tail_that_is_sent_keeps_no_other_key_of_its_partition_waiting() -> None:
    outbox = MemoryOutbox()
    tails, head = [key_of(0, place) for place in range(2)], key_of(0, 2)
    publisher = MemoryPublisher(lambda one: Rejected("no", True) if one.event_id in ("e-0", "e-1000") else None)
    with relay_on(outbox, publisher, Calls(), "before").started():
        firsts = [
            outbox.add([message(1_000 * n + number, key) for number in range(500)])[0] for n, key in enumerate(tails)
        ]
        wait_until(lambda: set(outbox.states().values()) == {"HELD", "DEAD"})
    failures = iter([Rejected("busy", permanent=False)] * 3)
    publisher.answer = lambda one: next(failures, None) if one.key == head else None
    for number in firsts:
        outbox.replay(number)
    outbox.add([message(2_000, head)])
    store = MemoryPartitionStore(outbox, relay_id="a", lease=5.0)
    quick = replace(SETTINGS, batch=10, retry=replace(LATER, base=0.001, cap=0.001))
    with OrderedRelay(store, publisher, quick).started():
        wait_until(lambda: set(outbox.states().values()) == {"SENT"})
    arrived = [one.event_id for one in publisher.arrived]
    for other in ("e-0", "e-1000", "e-2000"):
        assert arrived.index(other) < min(arrived.index("e-250"), arrived.index("e-1250"))
