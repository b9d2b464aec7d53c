"""The named points of the lab's own programs, and what a timeline says of them and of the product's.

A program calls :func:`reach`; what the lab does there (nothing, a kill, an exception, a broken link) is decided
outside. ``about`` says which event a thread is busy with, so that the timeline can tell. Tests of your own
strike by :func:`kill_at`, :func:`fail_at` and :func:`stall_at`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final, NamedTuple

from ..faultpoints import reach
from .model import Lane
from .strikes import fail_at, kill_at, stall_at

_event: ContextVar[str | None] = ContextVar("event", default=None)


@contextmanager
def about(event_id: str) -> Iterator[None]:
    """Within the block, this thread's points belong to ``event_id``."""
    before = _event.set(event_id)
    try:
        yield
    finally:
        _event.reset(before)


def now_about(event_id: str) -> None:
    """From here on this thread's points belong to ``event_id``."""
    _event.set(event_id)


def current_event() -> str | None:
    """The event that this thread is busy with, if it has said so."""
    return _event.get()


class Meaning(NamedTuple):
    """In which lane a point is drawn, and what has just happened there."""

    lane: Lane
    words: str


_APPLICATION, _RELAY, _CONSUMER = Lane.APPLICATION, Lane.RELAY, Lane.CONSUMER

MEANINGS: Final[Mapping[str, Meaning]] = MappingProxyType(
    {
        "s1.inserted": Meaning(_APPLICATION, "INSERT done, in an open transaction"),
        "s1.acknowledged": Meaning(_APPLICATION, "the broker has confirmed, the transaction is open"),
        "s1.committed": Meaning(_APPLICATION, "COMMIT has returned"),
        "s2.inserted": Meaning(_APPLICATION, "INSERT done, in an open transaction"),
        "s2.committed": Meaning(_APPLICATION, "COMMIT has returned, nothing is sent"),
        "s2.acknowledged": Meaning(_APPLICATION, "the broker has confirmed"),
        "s3.inserted": Meaning(_APPLICATION, "INSERT done and hook registered, in an open transaction"),
        "s3.committed": Meaning(_APPLICATION, "the hook after the commit begins, nothing is sent"),
        "s3.failed": Meaning(_APPLICATION, "sending has failed, the hook tries again"),
        "s3.acknowledged": Meaning(_APPLICATION, "the broker has confirmed"),
        "s4.sent": Meaning(_APPLICATION, "INSERT done, sent within a Kafka transaction; both are open"),
        "s4.database-committed": Meaning(_APPLICATION, "the database's COMMIT has returned, Kafka's is next"),
        "s4.committed": Meaning(_APPLICATION, "Kafka's commit has returned, too"),
        "s5.added": Meaning(_APPLICATION, "alarm and event written, in an open transaction"),
        "s5.committed": Meaning(_APPLICATION, "COMMIT has returned: alarm and event stand"),
        "sender.acknowledged": Meaning(_APPLICATION, "the broker's answer is there"),
        "sender.committed": Meaning(_APPLICATION, "the broker's answer to the commit is there"),
        "application.failed": Meaning(_APPLICATION, "the request ends with an error"),
        "outbox.before-commit": Meaning(_APPLICATION, "the transaction with the event is about to commit"),
        "outbox.after-commit": Meaning(_APPLICATION, "the transaction with the event has committed"),
        "relay.after-claim": Meaning(_RELAY, "the claim is committed, nothing is sent"),
        "relay.stored": Meaning(_RELAY, "the log has stored what was sent"),
        "relay.after-confirm": Meaning(_RELAY, "the broker has answered, nothing is settled"),
        "relay.after-settle": Meaning(_RELAY, "settled and committed"),
        "c0.received": Meaning(_CONSUMER, "received"),
        "c0.committed": Meaning(_CONSUMER, "the effect is committed, nothing is acknowledged"),
        "c0.acknowledged": Meaning(_CONSUMER, "acknowledged"),
        "c1.received": Meaning(_CONSUMER, "received"),
        "c1.looked": Meaning(_CONSUMER, "looked whether it was done before, and it was not"),
        "c1.committed": Meaning(_CONSUMER, "the effect is committed, nothing is acknowledged"),
        "c1.acknowledged": Meaning(_CONSUMER, "acknowledged"),
        "ca.acknowledged": Meaning(_CONSUMER, "received and acknowledged at once, nothing is done"),
        "ca.committed": Meaning(_CONSUMER, "the effect is committed"),
        "consumer.received": Meaning(_CONSUMER, "received"),
        "consumer.after-handler": Meaning(_CONSUMER, "mark and effect written, nothing is committed"),
        "consumer.after-commit": Meaning(_CONSUMER, "mark and effect are committed, nothing is acknowledged"),
        "consumer.after-ack": Meaning(_CONSUMER, "acknowledged"),
    }
)
"""Every point that a cell may strike or show, with its lane and words."""

__all__ = ["MEANINGS", "Meaning", "about", "current_event", "fail_at", "kill_at", "reach", "stall_at"]
