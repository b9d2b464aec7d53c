"""What every way of consuming is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Letter(NamedTuple):
    """A message as a broker's own client delivered it; ``handle`` is what the client acknowledges by."""

    event_id: str
    handle: Any


class Reader(Protocol):
    """A broker's own client as a consumer would use it. Every call has a deadline."""

    def poll(self, timeout: float, limit: int) -> list[Letter]:
        """Up to ``limit`` messages. In automatic mode they are acknowledged when this returns."""
        ...

    def acknowledge(self, letters: list[Letter]) -> None:
        """Tell the broker that these are finished."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """A consumer's work place. ``name`` is its group, or the queue's; ``database`` a URL.

    ``workers`` handle at the same time, of at most ``limit`` messages that are fetched at once. ``options`` are those
    of the product's source. ``goes_on`` turns False when it is to end, and what was given to
    ``when_told`` is called.
    """

    name: str
    database: str
    broker: str
    source: str
    workers: int
    limit: int
    options: Mapping[str, Any]
    goes_on: Callable[[], bool]
    when_told: Callable[[Callable[[], None]], None]
