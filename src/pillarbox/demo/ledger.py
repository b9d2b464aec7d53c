"""The books: what was ordered, published and applied, compared by event id. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Books:
    """The balance of one way.

    A ghost is an event that the broker or the stock service has, without an order. A loss is an order whose event never
    arrived. ``duplicates_delivered`` counts what the consumer was handed again; ``applied_twice`` what it did again.
    """

    orders: int
    events: int
    published: int
    applied: int
    ghosts: int
    losses: int
    duplicates_delivered: int
    applied_twice: int

    @property
    def balanced(self) -> bool:
        """True when the promise holds."""
        return self.ghosts == 0 and self.losses == 0 and self.applied_twice == 0

    def as_dict(self) -> dict[str, int]:
        """By name, for JSON."""
        return asdict(self)


def balance(
    orders: Collection[str], events: int, published: Sequence[str], applied: Sequence[str], deliveries: int
) -> Books:
    """Compare event ids: of the orders in the database, in the broker, and of the stock movements that were made."""
    ordered, told, done = set(orders), set(published), Counter(applied)
    return Books(
        orders=len(ordered),
        events=events,
        published=len(told),
        applied=len(done),
        ghosts=len((told | set(done)) - ordered),
        losses=len(ordered - set(done)),
        duplicates_delivered=max(0, deliveries - len(done)),
        applied_twice=sum(1 for times in done.values() if times > 1),
    )
