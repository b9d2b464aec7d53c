"""Handing events to a consumer without a broker: through the same decoding, the same inbox and the same transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from ..event.message import Message, to_headers
from ..ports import Incoming
from .attempt import Applied, DatabaseAway, Duplicate, Failed, attempt
from .consumer import Consumer
from .database import InboxDatabase
from .incoming import Unhandled, prepare
from .stats import ConsumerStats


def deliver(consumer: Consumer, messages: Iterable[Message]) -> ConsumerStats:
    """Apply ``messages`` in order, once each, as if the broker had delivered them; returns what became of them.

    Raises what a handler raises (nothing of that event is kept), CannotDecode (PB-016) for a body that does not fit,
    and TablesMissing (PB-006) without an inbox. Nothing is retried and nothing set aside.
    """
    side = consumer.open_side()
    try:
        side.check()
        return side.use(lambda database: _deliver_all(consumer, database, messages))
    finally:
        side.close()


def _deliver_all(consumer: Consumer, database: InboxDatabase, messages: Iterable[Message]) -> ConsumerStats:
    stats = ConsumerStats()
    for message in messages:
        _deliver(consumer, database, message, stats)
    return stats


def _deliver(consumer: Consumer, database: InboxDatabase, message: Message, stats: ConsumerStats) -> None:
    headers = dict(to_headers(message))
    incoming = Incoming(message.destination, headers, message.payload, message.key, None, redelivered=False)
    stats.received += 1
    prepared = prepare(incoming, consumer.registrations)
    if isinstance(prepared, Unhandled):
        stats.unhandled += 1
        return
    result = attempt(database, consumer.name, prepared.event_id, prepared.calls)
    match result:
        case Applied():
            stats.applied += 1
        case Duplicate():
            stats.duplicates += 1
        case Failed(error, _) | DatabaseAway(error, _):
            raise error
        case _:
            assert_never(result)
