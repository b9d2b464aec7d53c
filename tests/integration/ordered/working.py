"""Relays at work on a real database, and a broker in memory that writes down what arrives in which order."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pillarbox.event.message import Message
from pillarbox.policy.retry import RetryPolicy
from pillarbox.ports import Publisher
from pillarbox.publish.memory import MemoryPublisher
from pillarbox.relay import OrderedRelay, Relay, RelaySettings
from pillarbox.store.engines import Timeouts, relay_engine
from pillarbox.store.ordered import PartitionStore
from pillarbox.store.rowlease import RowLeaseStore
from tests.crash.ordered_lab import Lab

RETRY = RetryPolicy(0.05, 0.2, 50)


def settings(lease: float = 3.0, **given: Any) -> RelaySettings:
    """Impatient ones, so that tests are short."""
    usual: dict[str, Any] = {
        "broker_deadline": lease / 3, "retry": RETRY, "poll_max": 0.1, "due_interval": 0.05, "probe_interval": 0.2
    }  # fmt: skip
    return RelaySettings(lease=lease, **{**usual, **given})


@contextmanager
def relay(
    url: str, publisher: Publisher, name: str = "a", lease: float = 3.0, locks: int = 5, **given: Any
) -> Iterator[OrderedRelay]:
    """A relay at work that leases partitions."""
    chosen = settings(lease, **given)
    store = PartitionStore(relay_engine(url, timeouts=Timeouts(lock=locks)), relay_id=name, lease=lease)
    with running(OrderedRelay(store, publisher, chosen), name) as one:
        yield one


@contextmanager
def row_relay(url: str, publisher: Publisher, name: str = "a", lease: float = 3.0, **given: Any) -> Iterator[Relay]:
    """The same with a lease of rows, which promises no order."""
    store = RowLeaseStore(relay_engine(url, timeouts=Timeouts(lock=5)), relay_id=name, lease=lease)
    with running(Relay(store, publisher, settings(lease, **given)), name) as one:
        yield one


R = TypeVar("R", OrderedRelay, Relay)


@contextmanager
def running(one: R, name: str) -> Iterator[R]:
    """Run it on a thread; what it raises is raised at the end of the block."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            one.run()
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            raised.append(error)

    thread = threading.Thread(target=run, name=f"relay-{name}", daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.stop()
        thread.join(one.settings.broker_deadline + 30)
    assert not thread.is_alive(), "it does not stop"
    if raised:
        raise raised[0]


def wrong(lab: Lab, arrived: MemoryPublisher | Sequence[Message]) -> list[str]:
    """Loss, an event given up, or first occurrences out of the order of their row ids in a key."""
    messages = list(arrived.arrived if isinstance(arrived, MemoryPublisher) else arrived)
    return lost_or_dead(lab, messages) + out_of_order(lab, messages)


def lost_or_dead(lab: Lab, messages: Sequence[Message]) -> list[str]:
    """Events that did not arrive, are not recorded as sent, or were given up."""
    there = {one.event_id for one in messages}
    rows = lab.rows(
        "SELECT e.event_id, e.id, r.id FROM outbox_event e LEFT JOIN outbox_receipt r ON r.id = e.id ORDER BY e.id"
    )
    found = [
        f"lost: {number}, receipt {receipt}" for event, number, receipt in rows if event not in there or not receipt
    ]
    return found + [f"dead: {row}" for row in lab.rows("SELECT id, error FROM outbox_parked WHERE state = 'DEAD'")]


def out_of_order(lab: Lab, messages: Sequence[Message]) -> list[str]:
    """Keys whose first occurrences did not come in the order of their row ids."""
    numbers = dict(lab.rows("SELECT event_id, id FROM outbox_event"))
    first: dict[str | None, dict[int, None]] = defaultdict(dict)
    for message in messages:
        first[message.key].setdefault(numbers[message.event_id])
    first.pop(None, None)
    return [f"out of order, {key}: {[*ids]}" for key, ids in first.items() if [*ids] != sorted(ids)]
