"""Which events a test's code really committed, on whatever engine: what the fixture ``pillarbox_outbox`` is made of."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, overload

from sqlalchemy import Connection, Engine, event, select
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError

from ..consume import Consumer, ConsumerStats
from ..consume.deliver import deliver
from ..consume.handlers import event_type_name
from ..event.message import Message
from ..outbox.ledger import find
from ..store import pending
from ..store.schema import outbox_event
from .committed import CommittedEvents, Stored, as_committed

P = TypeVar("P")

_UNCERTAIN: Final = "pillarbox.recorded"
_COLUMNS: Final = (
    "event_id", "event_type", "schema_version", "aggregate_type", "aggregate_id", "event_key", "occurred_at", "headers",
    "content_type", "payload", "destination", "routing_key",
)  # fmt: skip


class OutboxRecorder:
    """Sees every commit that carries events, whichever Outbox wrote them, and hands them to consumers without a broker.

    It listens to SQLAlchemy and replaces nothing: the code under test writes to its own tables in its own transactions.
    What is rolled back is not seen; nor is what only a SAVEPOINT released, as in tests that wrap everything in an outer
    transaction and roll that back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stored: list[Stored] = []
        self._delivered: dict[str, set[str]] = {}

    @overload
    def committed(self, event_type: type[P]) -> CommittedEvents[P]: ...

    @overload
    def committed(self, event_type: str | None = None) -> CommittedEvents[Any]: ...

    def committed(self, event_type: type[P] | str | None = None) -> CommittedEvents[Any]:
        """The committed events of a type, payloads decoded into the class; plain JSON types for a name, or for all."""
        with self._lock:
            stored = list(self._stored)
        name = None if event_type is None else event_type_name(event_type)
        into = event_type if isinstance(event_type, type) else Any
        found = [as_committed(one, into) for one in stored if name is None or one.type == name]
        return CommittedEvents(found, [one.type for one in stored])

    def deliver_to(self, consumer: Consumer, *, again: bool = False) -> ConsumerStats:
        """Hand the consumer every committed event that it has not had from here, in order, through its real inbox.

        ``again=True`` delivers all of them once more, as a broker may: a correct consumer then changes nothing.
        Events for topics that are not among the consumer's ``sources`` stay out, except on RabbitMQ, where only the
        broker knows the bindings. Raises what a handler raises. Returns how many were applied, known or unhandled.
        """
        with self._lock:
            messages = [message for one in self._stored for message in one.messages]
        had = self._delivered.setdefault(consumer.name, set())
        stats = ConsumerStats()
        for message in messages:
            if consumer.reads(message.destination) and (again or message.event_id not in had):
                stats = stats.plus(deliver(consumer, [message]))
                had.add(message.event_id)
        return stats

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record from here to the end of the block."""
        listeners = (("begin", self._on_begin), ("commit", self._on_commit), ("handle_error", self._on_error))
        for name, listener in listeners:
            event.listen(Engine, name, listener)
        try:
            yield
        finally:
            for name, listener in listeners:
                event.remove(Engine, name, listener)

    def _on_begin(self, connection: Connection) -> None:
        connection.info.pop(_UNCERTAIN, None)  # whatever was committed before this is certain now

    def _on_commit(self, connection: Connection) -> None:
        """Before the COMMIT: the last moment at which the events can be read whatever the driver, async ones too."""
        ledger = find(connection)
        if ledger is None or not ledger.is_open or pending.refusal(connection.info) is not None:
            return  # nothing to commit, or the outbox will refuse it
        try:
            stored = _read(connection, ledger.events)
        except DBAPIError:
            return  # a transaction that cannot read any more cannot commit either
        connection.info[_UNCERTAIN] = stored
        with self._lock:
            self._stored += stored

    def _on_error(self, context: ExceptionContext) -> None:
        failed = context.connection.info.pop(_UNCERTAIN, None) if context.connection is not None else None
        if failed:  # the COMMIT itself failed
            with self._lock:
                self._stored = [one for one in self._stored if one not in failed]


def _read(connection: Connection, event_ids: Sequence[str]) -> list[Stored]:
    columns = [outbox_event.c[name] for name in (*_COLUMNS, "more_destinations")]
    query = select(*columns).where(outbox_event.c.event_id.in_(event_ids)).order_by(outbox_event.c.id)
    return [_stored(*row) for row in connection.execute(query)]


def _stored(*row: Any) -> Stored:
    *fields, more = row
    message = Message._make(fields)
    message = message._replace(payload=bytes(message.payload), occurred_at=_aware(message.occurred_at))
    others = [message._replace(destination=name, routing_key=key) for name, key in json.loads(more or "[]")]
    return Stored((message, *others))


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
