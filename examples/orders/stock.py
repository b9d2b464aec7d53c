"""The stock service: hears of orders, sets goods apart or refuses, and tells of it. No API; one process.

``python -m examples.orders.stock`` runs a relay and a consumer.
"""

from sqlalchemy import ForeignKey, String, create_engine, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pillarbox import Consumer, Event, Outbox, Received, relay_for

from . import settings
from .events import OrderPlaced, StockRefused, StockReserved


class Base(DeclarativeBase):
    """The stock service's tables."""


class Shelf(Base):
    """How many pieces of an item are free."""

    __tablename__ = "shelves"
    item: Mapped[str] = mapped_column(String(40), primary_key=True)
    free: Mapped[int]


class Reservation(Base):
    """Goods set apart. The id is a plain counter: nothing here but the inbox keeps a second one from being made."""

    __tablename__ = "reservations"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[str] = mapped_column(String(40), index=True)
    item: Mapped[str] = mapped_column(ForeignKey(Shelf.item))
    quantity: Mapped[int]


engine = create_engine(settings.stock_database(), pool_pre_ping=True)
outbox = Outbox(bind=engine, routes={"stock.reserved": "stock", "stock.refused": "stock"})
consumer = Consumer("stock", database=engine, broker=settings.broker(), sources=[settings.PLACED_QUEUE])


@consumer.on(OrderPlaced)
def reserve(event: Received[OrderPlaced], session: Session) -> None:
    """Inbox mark, goods, reservation and the answer's event commit together, or not at all."""
    order = event.payload
    enough = (Shelf.item == order.item) & (Shelf.free >= order.quantity)
    taken = session.connection().execute(update(Shelf).where(enough).values(free=Shelf.free - order.quantity)).rowcount
    answer: StockReserved | StockRefused
    if taken:
        session.add(Reservation(number=order.number, item=order.item, quantity=order.quantity))
        answer = StockReserved(order.number)
    else:
        answer = StockRefused(order.number, f"not enough of {order.item}")
    outbox.add(session, Event(answer, aggregate=("order", order.number)))


def main() -> None:
    """Run until SIGTERM."""
    with relay_for(settings.stock_database(), settings.broker(), settings.RELAY).started() as relay:
        outbox.nudges(relay.nudge)
        consumer.run()


if __name__ == "__main__":
    main()
