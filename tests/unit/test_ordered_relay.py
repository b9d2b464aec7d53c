"""The partition-lease relay on memory: what it does with every kind of answer, and with other relays."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from pillarbox.errors import DatabaseUnavailable
from pillarbox.event.message import Message
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Outcome, Rejected, Unavailable, Unknown
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, RelaySettings
from pillarbox.store.memory_ordered import MemoryPartitionStore
from pillarbox.store.memory_outbox import MemoryOutbox

FAST = RetryPolicy(base=0.01, cap=0.02, max_attempts=3, jitter=False)


def settings(**given: object) -> RelaySettings:
    every: dict[str, object] = {
        "lease": 3.0, "broker_deadline": 1.0, "batch": 50, "retry": FAST, "poll_max": 0.05,
        "due_interval": 0.02, "probe_interval": 0.02, "linger": 0.02,
    }  # fmt: skip
    return RelaySettings(**{**every, **given})  # type: ignore[arg-type]


def message(key: str | None, number: int, destination: str = "orders") -> Message:
    now = datetime.now(UTC)
    return Message(
        str(uuid4()), "t", 1, None, None, key, now, None, "text/plain", str(number).encode(), destination, None
    )


def messages(keys: int, each: int) -> list[Message]:
    return [message(f"k{number % keys}", number) for number in range(keys * each)]


def relay(outbox: MemoryOutbox, publisher: MemoryPublisher, name: str = "a", **given: object) -> OrderedRelay:
    chosen = settings(**given)
    return OrderedRelay(MemoryPartitionStore(outbox, relay_id=name, lease=chosen.lease), publisher, chosen)


@contextmanager
def running(*relays: OrderedRelay) -> Iterator[None]:
    threads = [threading.Thread(target=one.run) for one in relays]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in relays:
            one.stop()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)


def eventually(condition: Callable[[], bool], seconds: float = 8.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.005)


def all_sent(outbox: MemoryOutbox) -> bool:
    return set(outbox.states().values()) == {"SENT"}


def first_occurrences(publisher: MemoryPublisher) -> dict[tuple[str, str | None], list[int]]:
    seen: set[str] = set()
    found: dict[tuple[str, str | None], list[int]] = {}
    for one in list(publisher.arrived):
        if one.event_id not in seen:
            seen.add(one.event_id)
            found.setdefault((one.destination, one.key), []).append(int(one.payload))
    return found


def assert_in_order(publisher: MemoryPublisher) -> None:
    for stream, numbers in first_occurrences(publisher).items():
        assert numbers == sorted(numbers), stream


def test_everything_is_sent_once_and_in_order_of_each_key() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    outbox.add(messages(20, 20))
    relay(outbox, publisher).run(until_empty=True)
    assert len(publisher.arrived) == 400
    assert_in_order(publisher)
    assert all_sent(outbox)


class CountsKeys(MemoryPublisher):
    """Notes how many keys each full batch has."""

    def __init__(self, *, one_in_flight: bool) -> None:
        super().__init__()
        self.capabilities = MemoryPublisher.capabilities._replace(one_in_flight=one_in_flight)
        self.keys: list[int] = []

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        self.keys.append(len({one.key for one in messages}))
        return super().publish_in_order(messages)


def test_a_publisher_that_waits_for_each_key_gets_many_keys_in_a_round() -> None:
    """And everything still arrives once, in the order of each key."""
    found = []
    for one_in_flight in (True, False):
        outbox, publisher = MemoryOutbox(), CountsKeys(one_in_flight=one_in_flight)
        outbox.add(messages(keys=200, each=40))
        relay(outbox, publisher).run(until_empty=True)
        assert len(publisher.arrived) == 8_000
        assert_in_order(publisher)
        assert all_sent(outbox)
        found.append(statistics.median(publisher.keys))
    assert found[0] > 2 * found[1]


def test_partitions_whose_events_are_large_take_turns_however_few_of_them_fill_a_round() -> None:
    outbox, publisher = MemoryOutbox(), CountsKeys(one_in_flight=True)
    outbox.add([one._replace(payload=b"%6d" % n) for n, one in enumerate(messages(keys=100, each=6))])
    relay(outbox, publisher, max_bytes=36).run(until_empty=True)
    assert all_sent(outbox)
    first = {partition_of(lane_of(str(one.key))) for one in publisher.arrived[:200]}
    assert len(first) == len(outbox.tables.partitions)


def test_a_retry_holds_back_its_own_key_only() -> None:
    """C017."""
    outbox = MemoryOutbox()
    failures = iter([Rejected("busy", permanent=False)] * 2)

    def answer(one: Message) -> Outcome | None:
        return next(failures, None) if one.payload == b"0" else None

    publisher = MemoryPublisher(answer)
    outbox.add([message("a", 0), message("a", 1), message("b", 2), message("a", 3)])
    one = relay(outbox, publisher)
    with running(one):
        eventually(lambda: all_sent(outbox))
    assert publisher.arrived[0].payload == b"2"
    assert_in_order(publisher)
    assert one.stats.retried == 2
    assert one.stats.held == 2


def test_a_key_whose_head_is_dead_waits_until_the_head_is_replayed() -> None:
    outbox = MemoryOutbox()
    broken = True
    publisher = MemoryPublisher(lambda one: Rejected("no", permanent=True) if broken and one.payload == b"0" else None)
    ids = outbox.add([message("a", 0), message("a", 1), message("b", 2)])
    with running(relay(outbox, publisher)):
        eventually(lambda: outbox.states()[(ids[2], 0)] == "SENT" and outbox.states()[(ids[1], 0)] == "HELD")
        more = outbox.add([message("a", 3)])
        eventually(lambda: outbox.states()[(more[0], 0)] == "HELD")
        broken = False
        outbox.replay(ids[0])
        eventually(lambda: all_sent(outbox))
    assert first_occurrences(publisher)[("orders", "a")] == [0, 1, 3]


def test_a_key_goes_on_when_its_dead_head_is_buried() -> None:
    outbox = MemoryOutbox()
    publisher = MemoryPublisher(lambda one: Rejected("no", permanent=True) if one.payload == b"0" else None)
    ids = outbox.add([message("a", 0), message("a", 1)])
    with running(relay(outbox, publisher)):
        eventually(lambda: outbox.states()[(ids[1], 0)] == "HELD")
        outbox.bury(ids[0])
        eventually(lambda: outbox.states()[(ids[1], 0)] == "SENT")


def test_with_skip_a_key_goes_on_without_its_dead_event() -> None:
    outbox = MemoryOutbox()
    publisher = MemoryPublisher(lambda one: Rejected("no", permanent=True) if one.payload == b"0" else None)
    ids = outbox.add([message("a", 0), message("a", 1)])
    one = relay(outbox, publisher, on_failure="skip")
    with running(one):
        eventually(lambda: outbox.states() == {(ids[0], 0): "DEAD", (ids[1], 0): "SENT"})
    assert one.stats.skipped == 1


def test_an_outage_charges_nobody_and_order_holds_through_it() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    publisher.down = True
    outbox.add(messages(10, 10))
    one = relay(outbox, publisher)
    with running(one):
        eventually(lambda: one.stats.outages > 0)
        assert not outbox.parked()
        publisher.down = False
        eventually(lambda: all_sent(outbox))
    assert_in_order(publisher)
    assert one.stats.dead == one.stats.retried == 0


def test_a_dead_destination_does_not_stop_the_others() -> None:
    outbox = MemoryOutbox()
    down = True
    publisher = MemoryPublisher(
        lambda one: Unavailable("no leader", broker_answers=True) if down and one.destination == "sick" else None
    )
    outbox.add([message(f"k{n % 7}", n, "sick" if n % 2 else "well") for n in range(200)])
    with running(relay(outbox, publisher)):
        eventually(lambda: list(outbox.states().values()).count("SENT") == 100)
        down = False
        eventually(lambda: all_sent(outbox))
    assert_in_order(publisher)


def test_a_missing_destination_charges_its_head_alone() -> None:
    outbox = MemoryOutbox()
    missing = True
    publisher = MemoryPublisher(
        lambda one: Rejected("no topic", permanent=False, of_destination=True) if missing else None
    )
    outbox.add([message("a", n) for n in range(20)])
    one = relay(outbox, publisher, retry=RetryPolicy(base=0.05, cap=0.05, max_attempts=100, jitter=False))
    with running(one):
        eventually(lambda: one.stats.retried >= 2 and one.stats.held == 19)
        assert sum(attempts for _, attempts, _ in outbox.parked().values()) >= 2
        missing = False
        eventually(lambda: all_sent(outbox))
    assert_in_order(publisher)


def test_an_event_without_answer_is_sent_again_before_later_ones() -> None:
    outbox = MemoryOutbox()
    lost = iter([Unknown("no answer", destination_healthy=False)])
    publisher = MemoryPublisher(lambda one: next(lost, None) if one.payload == b"5" else None)
    outbox.add(messages(3, 10))
    with running(relay(outbox, publisher)):
        eventually(lambda: all_sent(outbox))
    assert_in_order(publisher)
    assert [one.payload for one in publisher.arrived].count(b"5") == 2


def test_two_relays_share_the_partitions_and_hand_over_when_one_leaves() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    first, second = relay(outbox, publisher, "a"), relay(outbox, publisher, "b")
    with running(first):
        eventually(lambda: first.stats.partitions == 16)
        with running(second):
            eventually(lambda: first.stats.partitions == second.stats.partitions == 8)
            outbox.add(messages(40, 10))
            eventually(lambda: all_sent(outbox))
        eventually(lambda: first.stats.partitions == 16, 3.0)
    assert_in_order(publisher)
    assert len(publisher.arrived) == 400


def test_renewals_are_counted() -> None:
    one = relay(MemoryOutbox(), MemoryPublisher(), lease=0.6, broker_deadline=0.1)
    with running(one):
        eventually(lambda: one.stats.renewed >= 16)


def test_a_row_that_committed_late_is_found_and_in_order() -> None:
    """C012, C014: the trap of a cursor. 8 follows 5 under the key's lock, 7 is another key's."""
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    with running(relay(outbox, publisher)):
        late = outbox.begin()
        late.add([message("k", 5)])
        outbox.add([message("other", 7)])
        eventually(lambda: len(publisher.arrived) == 1)
        late.commit()
        outbox.add([message("k", 8)])
        eventually(lambda: all_sent(outbox))
    assert first_occurrences(publisher)[("orders", "k")] == [5, 8]


def test_a_transaction_open_for_several_cycles_loses_nothing() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    one = relay(outbox, publisher)
    with running(one):
        late = outbox.begin()
        late.add([message("k", 0)])
        until = time.monotonic() + 2.5  # marks are taken and checked several times
        number = 0
        while time.monotonic() < until:
            number += 1
            outbox.add([message(f"x{number % 40}", number)])
            time.sleep(0.01)
        late.commit()
        eventually(lambda: all_sent(outbox), 3.0)
    assert one.stats.stragglers == 0


def test_a_database_that_goes_away_is_waited_for_and_outcomes_are_recorded_then() -> None:
    outbox, publisher = MemoryOutbox(), MemoryPublisher()
    down = False

    def fault(name: str, when: str) -> None:
        if down and when == "before":
            raise DatabaseUnavailable("away")

    store = MemoryPartitionStore(outbox, relay_id="a", lease=3.0, fault=fault)
    one = OrderedRelay(store, publisher, settings())
    with running(one):
        outbox.add(messages(5, 5))
        eventually(lambda: all_sent(outbox))
        down = True
        eventually(lambda: one.stats.database_errors > 0)
        outbox.add(messages(5, 5))
        down = False
        eventually(lambda: all_sent(outbox))
    assert len(publisher.arrived) == 50


@pytest.mark.parametrize("drain", [False, True], ids=["ready", "parked"])
def test_an_event_that_kills_its_relay_ends_dead_and_its_neighbours_are_delivered(drain: bool) -> None:
    """C-loops: about ten crashes at most, and nobody else is given up."""
    outbox = MemoryOutbox()
    armed = not drain

    class Crash(BaseException):
        pass

    def answer(one: Message) -> Outcome | None:
        if one.payload == b"777":
            if not armed:
                return Rejected("later", permanent=False)
            raise Crash
        return None

    publisher = MemoryPublisher(answer)
    all_of_them = [message(f"k{n % 9}", n) for n in range(300)]
    all_of_them[120] = message("k3", 777)
    ids = outbox.add(all_of_them)
    if drain:
        one = relay(outbox, publisher, retry=RetryPolicy(base=0.01, cap=0.01, max_attempts=1000, jitter=False))
        with running(one):
            eventually(lambda: outbox.states()[(ids[120], 0)] == "RETRY" and one.stats.sent > 200)
        armed = True
        outbox.add([message("k3", 1000)])
    crashes = 0
    for life in range(20):
        # A life of its own, killed: nothing is released, its leases are made to end.
        one = relay(outbox, publisher, f"life-{life}", lease=0.4, broker_deadline=0.1)
        one._leave = lambda: None  # type: ignore[method-assign]
        try:
            threading.Timer(1.2, one.stop).start()
            one.run()
        except Crash:
            crashes += 1
        else:
            break
        finally:
            one._keeper.stop()
            one._sender.stop(1.0)
        time.sleep(0.42)
    assert outbox.states()[(ids[120], 0)] == "DEAD"
    assert crashes <= 10
    assert sum(state == "DEAD" for state in outbox.states().values()) == 1
    assert set(outbox.states().values()) <= {"SENT", "DEAD", "HELD"}
