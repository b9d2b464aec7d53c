"""Holds in a relay's memory: what is kept of a million dead keys, and that nothing else changes with it."""

from __future__ import annotations

import random
import tracemalloc

from pillarbox.ports import EVERY_LANE, Hold, Stream
from pillarbox.relay.ordered.estate import Holds

TARGET = 1234567890123456789


def dead(lane: int, head: int = 7) -> Hold:
    return Hold(Stream(3, lane, TARGET), "dead", head, None, f"orders-{lane}", f"unroutable: no such exchange {lane}")


def test_a_dead_key_takes_little_memory() -> None:
    lanes = random.Random(1)
    tracemalloc.start()
    holds = Holds((dead(lanes.getrandbits(60), 10**7 + n) for n in range(20_000)), 0.0)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(holds) == 20_000
    assert size / len(holds) < 160


def test_a_dead_hold_is_found_with_its_head_and_never_due() -> None:
    holds = Holds([dead(1, head=11), dead(2, head=12)], 0.0)
    found = holds.over(Stream(3, 1, TARGET))
    assert found is not None
    assert (found.mode, found.head_id) == ("dead", 11)
    assert holds.over(Stream(3, 1, TARGET + 1)) is None
    assert holds.get(Stream(4, 1, TARGET)) is None
    assert holds.due(1e9, 10) == []
    assert sorted(holds.lanes(10)) == [1, 2]
    assert sorted(one.hold.head_id for one in holds) == [11, 12]


def test_a_hold_changes_between_dead_and_going_without_being_there_twice() -> None:
    stream = Stream(3, 1, TARGET)
    holds = Holds([dead(1)], 0.0)
    holds.put(dead(1)._replace(mode="drain", due_in=0.0), 5.0)
    assert [one.stream for one in holds.due(5.0, 10)] == [stream]
    assert (len(holds), bool(holds)) == (1, True)
    holds.put(dead(1), 6.0)
    assert holds.due(9.0, 10) == []
    assert len(holds) == 1
    holds.drop(stream)
    assert (len(holds), bool(holds), holds.get(stream)) == (0, False, None)


def test_a_dead_hold_on_a_whole_destination_makes_every_key_of_it_wait() -> None:
    holds = Holds([dead(EVERY_LANE), dead(5)._replace(mode="backoff", due_in=1.0)], 0.0)
    assert holds.over(Stream(3, 99, TARGET)) is not None
    assert holds.due(2.0, 10) == []
    assert holds.lanes(10) == [5]
