"""What a relay needs of a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ..event.message import Message
from .outcomes import Outcome


class PublisherCapabilities(NamedTuple):
    """What a publisher declares about itself."""

    scheme: str
    pipelined_order: bool  # a batch reaches one destination and key in the order of the list
    positions: bool  # Confirmed carries partition and offset
    headers: bool
    one_in_flight: bool = False  # in order it sends a message of a stream only when the one before is confirmed


UnderWay = Callable[[float], list[Outcome] | None]
"""Waits up to so many seconds for a batch that was begun: its outcomes, or None while some are missing."""


class Publisher(Protocol):
    """A connection to one broker. ``publish`` never raises for a bad message: every message has its outcome."""

    capabilities: PublisherCapabilities

    def open(self) -> None:
        """Connect, or raise BrokerUnavailable (PB-005), AccessRefused (PB-008) or MissingDriver (PB-003)."""
        ...

    def publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """Send all, pipelined, and wait for each one's own acknowledgement, at most the deadline given at construction.

        Returns one outcome per message in the same order. Reconnects by itself; while it cannot: Unavailable.
        """
        ...

    def publish_in_order(self, messages: Sequence[Message]) -> list[Outcome]:
        """The same, but gapless in each stream, which is one destination and key (a message without key is its own).

        No message reaches the broker before all earlier ones of its stream are there: within the call, and over calls
        as long as the caller sends again, first, what was not confirmed. What is not sent for that reason is Withheld.
        """
        ...

    def close(self) -> None:
        """Close within a few seconds, whatever the broker does."""
        ...


@runtime_checkable
class BeginsInOrder(Protocol):
    """A Publisher that can have the next ordered batch while it waits for the one before."""

    def begin_in_order(self, messages: Sequence[Message]) -> UnderWay:
        """As ``publish_in_order``, without waiting for the outcomes; batches end in the order in which they are begun.

        What a batch leaves unconfirmed holds back its streams in the batches that were begun before it ended.
        """
        ...
