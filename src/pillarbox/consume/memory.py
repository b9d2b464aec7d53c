"""A broker in memory, for tests of consumers: every behaviour of a real one that a consumer can notice, on demand."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ..errors import BrokerUnavailable, SourceMissing
from ..event.message import Message, to_headers
from ..ports import Incoming
from .dead import dead_headers, dead_name
from .retries import POSITION, read_retry_headers, retry_headers, retry_name, without_retry_headers

if TYPE_CHECKING:
    from .deadletters.memory import MemoryBox


class MemoryRecord(NamedTuple):
    """One stored message."""

    key: str | None
    headers: dict[str, str]
    body: bytes


class MemoryPosition(NamedTuple):
    """Where a message stands: the topic that it was read from, and its number there."""

    topic: str
    number: int
    original: str

    def __str__(self) -> str:
        return self.original or str(self.number)


class MemoryBroker:
    """Topics in this process. Each consumer name reads a topic from its beginning and shares it between its members.

    ``away = True`` refuses everything until it is False again; ``dead_letters_away`` refuses only dead letters.

    >>> broker = MemoryBroker()
    >>> broker.publish("orders", b"{}", {"id": "1", "eventType": "order.created"})
    >>> len(broker.records("orders"))
    1
    """

    def __init__(self) -> None:
        self.away = False
        self.dead_letters_away = False
        self.now: Callable[[], float] = time.time  # decides when a message that was put back comes again
        self.changed = threading.Condition(threading.RLock())
        self._topics: dict[str, list[MemoryRecord]] = {}
        self._groups: dict[tuple[str, str], _Group] = {}

    def declare(self, name: str) -> None:
        """Make a topic; publishing does it, too."""
        with self.changed:
            self._topics.setdefault(name, [])

    def publish(self, name: str, body: bytes, headers: Mapping[str, str], key: str | None = None) -> None:
        """Append a message as it would be on the wire."""
        with self.changed:
            self.declare(name)
            self._topics[name].append(MemoryRecord(key, dict(headers), body))
            self.changed.notify_all()

    def send(self, message: Message) -> None:
        """Append an event as a publisher would."""
        self.publish(message.destination, message.payload, dict(to_headers(message)), message.key)

    def records(self, name: str) -> list[MemoryRecord]:
        """What a topic holds; nothing for a topic that does not exist."""
        with self.changed:
            return list(self._topics.get(name, ()))

    def unacknowledged(self, name: str, consumer: str) -> int:
        """How many messages of a topic the consumer has not finished, those included that wait to be tried again."""
        with self.changed:
            topics = (name, retry_name(name, consumer))
            return sum(len(self.records(one)) - len(self.group(consumer, one).acknowledged) for one in topics)

    def group(self, consumer: str, name: str) -> _Group:
        """How far a consumer has come on a topic (for the source)."""
        return self._groups.setdefault((consumer, name), _Group())

    def has(self, name: str) -> bool:
        """True when the topic exists."""
        return name in self._topics

    def source(self, consumer: str, sources: Sequence[str]) -> MemorySource:
        """A member of ``consumer``, not yet open."""
        return MemorySource(self, consumer, sources)

    def dead_letters(self, consumer: str, source: str) -> MemoryBox:
        """What ``consumer`` gave up of ``source``, not yet open."""
        from .deadletters.memory import MemoryBox

        return MemoryBox(self, consumer, source)


@dataclass(slots=True)
class _Group:
    """``out`` maps a position to the member that has it; ``seen`` were handed out at least once."""

    out: dict[int, MemorySource] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)


class MemorySource:
    """One member of one consumer at a :class:`MemoryBroker`."""

    def __init__(self, broker: MemoryBroker, consumer: str, sources: Sequence[str]) -> None:
        self._broker = broker
        self._consumer = consumer
        self._sources = tuple(sources)
        self._topics = {name: name for name in sources} | {retry_name(name, consumer): name for name in sources}
        self._until_due = math.inf

    def open(self) -> None:
        """Raises BrokerUnavailable while the broker is away and SourceMissing for a topic that was never made."""
        self._check_there()
        for name in self._sources:
            if not self._broker.has(name):
                raise SourceMissing(f"The topic {name!r} does not exist.")

    def poll(self, timeout: float, limit: int) -> list[Incoming]:
        """The next messages that no member has."""
        until = time.monotonic() + timeout
        with self._broker.changed:
            while True:
                found = [] if self._broker.away else self._take(limit)
                left = until - time.monotonic()
                if found or left <= 0:
                    return found
                self._broker.changed.wait(min(left, self._until_due) if limit else left)

    def holds(self, incoming: Incoming) -> bool:
        """True until it is acknowledged or the source was closed."""
        position = _position(incoming)
        with self._broker.changed:
            return self._broker.group(self._consumer, position.topic).out.get(position.number) is self

    def acknowledge(self, done: Sequence[Incoming]) -> None:
        """Finished: never delivered to this consumer again."""
        self._check_there()
        with self._broker.changed:
            for incoming in done:
                if self.holds(incoming):
                    position = _position(incoming)
                    group = self._broker.group(self._consumer, position.topic)
                    del group.out[position.number]
                    group.acknowledged.add(position.number)

    def set_aside(self, incoming: Incoming, reason: str, attempts: int) -> None:
        """Append it to the dead-letter topic."""
        self._check_there()
        if self._broker.dead_letters_away:
            raise BrokerUnavailable("The dead-letter topic cannot be written.")
        added = dead_headers(
            source=incoming.source,
            consumer=self._consumer,
            position=str(incoming.position),
            reason=reason,
            attempts=attempts,
            at=datetime.now(UTC),
        )
        name = dead_name(incoming.source, self._consumer)
        self._broker.publish(name, incoming.body, {**incoming.headers, **dict(added)}, incoming.key)

    def put_back(self, incoming: Incoming, seconds: float, reason: str, attempts: int) -> None:
        """Append it to the consumer's retry topic."""
        self._check_there()
        now = datetime.fromtimestamp(self._broker.now(), UTC)
        added = retry_headers(
            seconds=seconds, now=now, position=str(incoming.position), reason=reason, attempts=attempts
        )
        name = retry_name(incoming.source, self._consumer)
        self._broker.publish(name, incoming.body, {**incoming.headers, **dict(added)}, incoming.key)

    def close(self) -> None:
        """Give back what was not acknowledged."""
        with self._broker.changed:
            for name in self._topics:
                group = self._broker.group(self._consumer, name)
                for number in [number for number, member in group.out.items() if member is self]:
                    del group.out[number]
            self._broker.changed.notify_all()

    def _take(self, limit: int) -> list[Incoming]:
        found: list[Incoming] = []
        self._until_due = math.inf
        for name, source in self._topics.items():
            group = self._broker.group(self._consumer, name)
            for number, record in enumerate(self._broker.records(name)):
                if len(found) >= limit:
                    return found
                if number not in group.out and number not in group.acknowledged and self._due(record, name, source):
                    again = number in group.seen
                    group.out[number] = self
                    group.seen.add(number)
                    found.append(_incoming(record, name, source, number, again=again))
        return found

    def _due(self, record: MemoryRecord, name: str, source: str) -> bool:
        if name == source:
            return True
        left = read_retry_headers(record.headers).due - self._broker.now()
        if left > 0:
            self._until_due = min(self._until_due, left)
        return left <= 0

    def _check_there(self) -> None:
        if self._broker.away:
            raise BrokerUnavailable("The broker in memory is switched off.")


def _incoming(record: MemoryRecord, name: str, source: str, number: int, *, again: bool) -> Incoming:
    if name == source:
        return Incoming(source, record.headers, record.body, record.key, MemoryPosition(name, number, ""), again)
    position = MemoryPosition(name, number, record.headers.get(POSITION, ""))
    headers = without_retry_headers(record.headers)
    attempts = read_retry_headers(record.headers).attempts
    return Incoming(source, headers, record.body, record.key, position, again, attempts)


def _position(incoming: Incoming) -> MemoryPosition:
    assert isinstance(incoming.position, MemoryPosition)
    return incoming.position
