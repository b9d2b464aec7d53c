"""What the two services tell each other: the contract, and nothing else that they share."""

from dataclasses import dataclass

from pillarbox import event_type


@event_type("order.placed", version=1)
@dataclass(frozen=True, slots=True)
class OrderPlaced:
    """An order was accepted; its goods are wanted."""

    number: str
    item: str
    quantity: int


@event_type("stock.reserved", version=1)
@dataclass(frozen=True, slots=True)
class StockReserved:
    """The goods of this order are set apart."""

    number: str


@event_type("stock.refused", version=1)
@dataclass(frozen=True, slots=True)
class StockRefused:
    """There are not enough goods: the order has to be undone."""

    number: str
    reason: str
