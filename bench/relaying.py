"""The role of a relay: the product's or a raw loop, running until it is told to end.

Asked anything, it says how much it has sent, its memory, and when each event was confirmed (if told to note that).
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from bench import machine
from bench.child import Told, questions, say
from bench.product import make_relay, open_publisher
from bench.raw import open_broker, open_database
from bench.raw_loop import Position, RawBroker, Row, follow
from pillarbox.event.message import Message
from pillarbox.ports import BeginsInOrder, Confirmed, Outcome, UnderWay
from pillarbox.relay import RelaySettings

Notes = list[tuple[str, int]]
"""Event ids, and when their confirmation was known, in nanoseconds of the machine's clock."""


def main(told: Told) -> None:
    """``told``: side, ownership, database, broker, destination, and for some batch, poll, settings, note, relay_id."""
    logging.basicConfig(level=logging.WARNING)
    (product if told["side"] == "product" else raw)(told)


def product(told: Told) -> None:
    """The relay on a thread, with the publisher's confirmations noted."""
    notes: Notes = []
    settings = RelaySettings(**{"batch": told.get("batch", 1000), **told.get("settings", {})})
    publisher: Any = open_publisher(told["broker"], settings.broker_deadline)
    kind = NotingAheadPublisher if isinstance(publisher, BeginsInOrder) else NotingPublisher
    noting = kind(publisher, notes if told.get("note") else None)
    relay = make_relay(told["ownership"], told["database"], noting, settings, relay_id=told.get("relay_id", "bench"))
    gc.freeze()
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    say("ready")
    for _ in questions():
        say(_state(relay.stats.sent, noting.confirmed))
    relay.stop()
    thread.join(30)
    last = {"notes": notes, "stats": relay.stats.as_dict()}
    say(_state(relay.stats.sent, noting.confirmed) | last)


def raw(told: Told) -> None:
    """The raw loop that follows a trickle."""
    notes: Notes = []
    batch = told.get("batch", 2000)
    database = open_database(told["ownership"], told["database"], ahead=False)
    broker = open_broker(told["broker"], told["destination"], batch, linger_ms=told.get("linger_ms", 0))
    noting = NotingBroker(broker, notes if told.get("note") else None)
    stop = threading.Event()
    sent: list[int] = []
    gc.freeze()
    thread = threading.Thread(target=lambda: sent.append(follow(database, noting, batch, told["poll"], stop)))
    thread.start()
    say("ready")
    for _ in questions():
        say(_state(0, noting.confirmed))
    stop.set()
    thread.join(30)
    broker.close()
    say(_state(sum(sent), noting.confirmed) | {"notes": notes})


def _state(sent: int, confirmed: int) -> dict[str, Any]:
    memory = {"rss_mib": machine.rss_mib(), "peak_rss_mib": machine.rss_mib(peak=True)}
    return {"sent": sent, "confirmed": confirmed, "cpu": time.process_time()} | memory


class NotingPublisher:
    """A Publisher that counts, and notes when each message was confirmed."""

    def __init__(self, publisher: Any, notes: Notes | None) -> None:
        self._publisher = publisher
        self._notes = notes
        self.confirmed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publisher, name)

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        return self._note(messages, self._publisher.publish(messages))

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        return self._note(messages, self._publisher.publish_in_order(messages))

    def _note(self, messages: Sequence[Message], outcomes: list[Outcome]) -> list[Outcome]:
        now = time.time_ns()
        confirmed = [m.event_id for m, one in zip(messages, outcomes, strict=True) if type(one) is Confirmed]
        self.confirmed += len(confirmed)
        if self._notes is not None:
            self._notes.extend((event_id, now) for event_id in confirmed)
        return outcomes


class NotingAheadPublisher(NotingPublisher):
    """The same for one that has the next batch while it waits for the one before."""

    def begin_in_order(self, messages: Sequence[Message]) -> UnderWay:
        wait: UnderWay = self._publisher.begin_in_order(messages)

        def noted(seconds: float) -> list[Outcome] | None:
            outcomes = wait(seconds)
            return None if outcomes is None else self._note(messages, outcomes)

        return noted


class NotingBroker:
    """The same for a raw loop."""

    def __init__(self, broker: RawBroker, notes: Notes | None) -> None:
        self._broker = broker
        self._notes = notes
        self._rows: Sequence[Row] = ()
        self.confirmed = 0

    def start(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._broker.start(rows)

    def finish(self) -> Sequence[Position]:
        positions = self._broker.finish()
        now = time.time_ns()
        self.confirmed += len(self._rows)
        if self._notes is not None:
            self._notes.extend((row[2], now) for row in self._rows)
        return positions

    def close(self) -> None:
        self._broker.close()
