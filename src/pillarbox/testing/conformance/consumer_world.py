"""What the consumer suite is given: a broker that it can publish to and look into, and a database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, delete, func, insert, select
from sqlalchemy.orm import Session

from ... import faultpoints
from ...consume import Broker, Consumer, Received
from ...event.codec import JSON
from ...event.message import Message
from ...policy.retry import RetryPolicy
from ...store.schema import inbox_event


class ConsumerCapabilities(NamedTuple):
    """What a broker's source declares; a test that needs more is skipped and names what is missing."""

    scheme: str
    missing_sources: bool = True  # a topic or queue that does not exist is noticed at the start
    broadcast: bool = True  # every consumer name reads everything (a topic), instead of sharing it (a queue)
    unacknowledged: bool = True  # the broker can tell how much a consumer has not finished


class DeadCopy(NamedTuple):
    """A message found in a dead-letter destination."""

    key: str | None
    headers: dict[str, str]
    body: bytes


class BrokerUnderTest(Protocol):
    """The broker's side of the suite. Implement it once for your broker."""

    capabilities: ConsumerCapabilities

    @property
    def broker(self) -> str | Broker:
        """What ``Consumer(broker=…)`` takes."""
        ...

    def new_source(self) -> str:
        """Make an empty topic or queue that nobody has used."""
        ...

    def send(self, messages: Sequence[Message]) -> None:
        """Publish to ``message.destination``, a source, as the relay would; confirmed when this returns."""
        ...

    def send_foreign(self, source: str, body: bytes) -> None:
        """Publish a message that no outbox wrote: without headers."""
        ...

    def dead_letters(self, name: str, at_least: int) -> list[DeadCopy]:
        """All messages of a dead-letter topic or queue, once there are ``at_least`` so many (a few seconds)."""
        ...

    def unacknowledged(self, source: str, consumer: str) -> int:
        """Messages of a source that the consumer, which is stopped, has not finished, by the broker's own word."""
        ...


_tables = MetaData()
effect = Table(
    "conformance_effect",
    _tables,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("event_id", String(100), nullable=False),
    Column("note", String(200), nullable=False),
)
only_once = Table("conformance_only_once", _tables, Column("name", String(50), primary_key=True))

WAIT = 30.0
"""Seconds that a test waits for something to happen; joining a Kafka group takes a few."""

QUICK_RETRY = RetryPolicy(base=0.01, cap=0.02, max_attempts=3)


@dataclass(frozen=True, slots=True)
class Thing:
    """The typed payload of these tests."""

    n: int


class Crash(BaseException):
    """Ends a consumer at a fault point, as a killed process would end: nothing after it runs."""


@dataclass(slots=True)
class ConsumerWorld:
    """One test's broker, database and source."""

    under_test: BrokerUnderTest
    database: Engine
    source: str = field(init=False)
    _reader: Engine = field(init=False)

    def __post_init__(self) -> None:
        _tables.create_all(self.database)
        with self.database.begin() as connection:
            for table in _tables.sorted_tables:
                connection.execute(delete(table))
        self.source = self.under_test.new_source()
        self._reader = self.database.execution_options(pillarbox_begin="DEFERRED")  # SQLite: read beside an open write

    def consumer_of_things(self, name: str | None = None, **changes: Any) -> Consumer:
        """A consumer whose one handler writes one row per event."""
        consumer = self.consumer(name, **changes)

        @consumer.on("thing.happened")
        def handle(event: Received[Thing], session: Session) -> None:
            write_effect(session, event.id, str(event.payload.n))

        return consumer

    def consumer(self, name: str | None = None, **changes: Any) -> Consumer:
        """A consumer of this test's source that retries quickly."""
        arguments: dict[str, Any] = {
            "database": self.database,
            "broker": self.under_test.broker,
            "sources": [self.source],
            "retry": QUICK_RETRY,
        }
        return Consumer(name or f"c-{uuid4().hex[:12]}", **(arguments | changes))

    def message(self, n: int = 1, **changes: Any) -> Message:
        """An event as the outbox would store it, for this test's source; ``Thing(n)`` is its payload."""
        return a_message(self.source, n, **changes)

    def send(self, *messages: Message) -> None:
        """Publish events to this test's source."""
        self.under_test.send(messages)

    def effects(self) -> list[str]:
        """The event ids whose effect is committed, in order."""
        with self._reader.connect() as connection:
            return list(connection.scalars(select(effect.c.event_id).order_by(effect.c.seq)))

    def notes(self) -> list[str]:
        """The notes of committed effects, in order."""
        with self._reader.connect() as connection:
            return list(connection.scalars(select(effect.c.note).order_by(effect.c.seq)))

    def marks(self, consumer: Consumer) -> int:
        """How many events the inbox holds for a consumer."""
        with self._reader.connect() as connection:
            query = select(func.count()).select_from(inbox_event).where(inbox_event.c.consumer == consumer.name)
            return int(connection.scalar(query) or 0)

    def need(self, capability: str) -> None:
        """Skip the test where the broker lacks a capability."""
        if not getattr(self.under_test.capabilities, capability):
            pytest.skip(f"{self.under_test.capabilities.scheme} lacks the capability {capability!r}")

    def assert_all_acknowledged(self, consumer: Consumer, timeout: float = 10.0) -> None:
        """The broker, as far as it can tell, has nothing left for the (stopped) consumer."""
        until = time.monotonic() + timeout
        left = -1
        while self.under_test.capabilities.unacknowledged and left != 0 and time.monotonic() < until:
            left = self.under_test.unacknowledged(self.source, consumer.name)
        assert left <= 0, f"{left} messages are not acknowledged"

    def dead(self, consumer: Consumer, at_least: int = 1) -> list[DeadCopy]:
        """The consumer's dead letters of this test's source."""
        return self.under_test.dead_letters(f"{self.source}.{consumer.name}.dead", at_least)


def a_message(source: str, n: int = 1, /, **changes: Any) -> Message:
    """An event as the outbox would store it; ``Thing(n)`` is its payload."""
    made = Message(
        event_id=str(uuid4()),
        event_type="thing.happened",
        schema_version=1,
        aggregate_type="thing",
        aggregate_id="7",
        key="7",
        occurred_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        headers=None,
        content_type=JSON,
        payload=b'{"n":%d}' % n,
        destination=source,
        routing_key=None,
    )
    return made._replace(**changes)


def write_effect(session: Session, event_id: str, note: str = "") -> None:
    """What a handler does in these tests."""
    session.execute(insert(effect).values(event_id=event_id, note=note))


@contextmanager
def crash_at(point: str, when: Callable[[], bool] = lambda: True) -> Iterator[threading.Event]:
    """Raise Crash in whatever thread reaches the fault point, once; the event tells that it happened."""
    happened = threading.Event()

    def hook(name: str) -> None:
        if name == point and not happened.is_set() and when():
            happened.set()
            raise Crash(point)

    faultpoints.attach(hook)
    try:
        yield happened
    finally:
        faultpoints.attach(None)
