"""Deliveries for tests of pure code."""

from datetime import UTC, datetime

from pillarbox.event.message import Message
from pillarbox.ports import Delivery, WorkKey

MESSAGE = Message(
    "0198-…",
    "t",
    1,
    None,
    None,
    None,
    datetime(2026, 1, 1, tzinfo=UTC),
    None,
    "application/json",
    b"{}",
    "orders",
    None,
)


def delivery(number: int, *, claims: int = 1, attempts: int = 0) -> Delivery:
    """One delivery with row id ``number``."""
    return Delivery(WorkKey(0, number, 0), 0, attempts, claims, MESSAGE)
