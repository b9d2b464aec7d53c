"""An event that kills its relay, parked behind others: the care after a crash goes on while it waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pillarbox.errors import DatabaseUnavailable
from pillarbox.event.message import Message
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Outcome, Rejected
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay
from pillarbox.store.memory_ordered import MemoryPartitionStore
from pillarbox.store.memory_outbox import MemoryOutbox
from tests.unit.test_ordered_after_crashes import SETTINGS, of_key, states

PATIENT = replace(SETTINGS, retry=RetryPolicy(0.1, 0.1, 100, jitter=False))
"""The care could end while the head waits."""
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


class Killed(BaseException):
    """What a process does not survive."""


class Life:
    """One relay's life with a broker that refuses the first event once, and a poison that ends it."""

    def __init__(self, outbox: MemoryOutbox, poison: str) -> None:
        self.publisher = MemoryPublisher(self._answer)
        self._refused = False
        self._poison = poison
        self._dead = False
        store = MemoryPartitionStore(outbox, relay_id="a", lease=6.0, fault=self._fault)
        self._relay = OrderedRelay(store, self.publisher, PATIENT)

    def survived(self, settled: Callable[[], bool]) -> bool:
        """Run until all is settled, or, False, until the poison has ended it."""
        thread = threading.Thread(target=self._run)
        thread.start()
        until = time.monotonic() + 10
        while thread.is_alive() and not settled():
            assert time.monotonic() < until, "neither settled nor dead"
            time.sleep(0.002)
        self._relay.stop()
        thread.join(10)
        return not self._dead

    def _run(self) -> None:
        with suppress(Killed):
            self._relay.run()

    def _answer(self, message: Message) -> Outcome | None:
        if message.event_id == self._poison:
            self._dead = True
            raise Killed
        if not self._refused:
            self._refused = True
            return Rejected("not at first", permanent=False)
        return None

    def _fault(self, name: str, when: str) -> None:
        if self._dead:  # a killed process writes nothing any more
            raise DatabaseUnavailable("killed")


def leases_end(outbox: MemoryOutbox) -> None:
    for row in outbox.tables.partitions.values():
        row.leased_until = LONG_AGO
    outbox.tables.relays.clear()


def deaths_until(outbox: MemoryOutbox, poison: str, wanted: list[str]) -> int:
    """How many relays it takes along until the events are in these states."""
    deaths = 0
    while not Life(outbox, poison).survived(lambda: states(outbox) == wanted):
        deaths += 1
        assert deaths < 30
        leases_end(outbox)
    return deaths


@pytest.mark.parametrize("place", [0, 1, 7, 20])
def test_a_poison_behind_events_that_have_to_wait_is_found_within_ten_crashes(place: int) -> None:
    """In each life the head has to wait first; care that ended meanwhile would begin anew with the next crash."""
    outbox = MemoryOutbox()
    events = of_key(60)
    outbox.add(events)
    wanted = ["SENT"] * place + ["DEAD"] + ["HELD"] * (59 - place)
    assert deaths_until(outbox, events[place].event_id, wanted) <= 10
