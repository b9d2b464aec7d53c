"""The order service: takes orders over HTTP, tells of them, and hears what became of their goods.

Two processes: ``uvicorn examples.orders.orders:app`` is the API with a relay inside, and
``pillarbox consume examples.orders.orders:consumer`` hears the answers. Orders are taken while the broker is away.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import String, create_engine, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pillarbox import Consumer, Event, Outbox, Received, relay_for

from . import settings
from .events import OrderPlaced, StockRefused, StockReserved


class Base(DeclarativeBase):
    """The order service's tables."""


class Order(Base):
    """One order. ``state``: placed, then confirmed or cancelled."""

    __tablename__ = "orders"
    number: Mapped[str] = mapped_column(String(40), primary_key=True)
    item: Mapped[str] = mapped_column(String(40))
    quantity: Mapped[int]
    state: Mapped[str] = mapped_column(String(10))
    reason: Mapped[str] = mapped_column(String(200), default="")


class Voucher(Base):
    """A voucher that was used. Its primary key refuses a second order with it, when that order is almost done."""

    __tablename__ = "vouchers"
    code: Mapped[str] = mapped_column(String(40), primary_key=True)
    number: Mapped[str] = mapped_column(String(40))


class Wanted(BaseModel):
    """The body of a request."""

    item: str = Field(max_length=40)
    quantity: Annotated[int, Field(ge=1, le=1000)] = 1
    voucher: str | None = Field(default=None, max_length=40)


engine = create_engine(settings.orders_database(), pool_pre_ping=True)
outbox = Outbox(bind=engine, routes={"order.placed": "orders"})

# What the stock service answers --------------------------------------------------------------------------------------

consumer = Consumer("orders", database=engine, broker=settings.broker(), sources=[settings.DECIDED_QUEUE])


@consumer.on(StockReserved)
def confirm(event: Received[StockReserved], session: Session) -> None:
    """The goods are there."""
    session.execute(update(Order).where(Order.number == event.payload.number).values(state="confirmed"))


@consumer.on(StockRefused)
def cancel(event: Received[StockRefused], session: Session) -> None:
    """The compensation: the order is undone, and its voucher may be used again."""
    decided = event.payload
    session.execute(
        update(Order).where(Order.number == decided.number).values(state="cancelled", reason=decided.reason)
    )
    session.query(Voucher).filter_by(number=decided.number).delete()


# The API ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The relay lives as long as the server, and finishes what it has in flight when that is told to end."""
    with relay_for(settings.orders_database(), settings.broker(), settings.RELAY).started() as relay:
        outbox.nudges(relay.nudge)
        yield


app = FastAPI(lifespan=lifespan)


@app.put("/orders/{number}", status_code=201)
def place(number: str, wanted: Wanted) -> dict[str, str]:
    """Take an order. The caller chooses the number, so that a request whose answer was lost can simply be sent again.

    The event is written before the voucher is checked, on purpose: were it sent to the broker there and then, a refused
    voucher would leave a message about an order that does not exist.
    """
    with Session(engine) as session:
        known = session.get(Order, number)
        if known is not None:
            return {"number": number, "state": known.state}
        try:
            session.add(Order(number=number, item=wanted.item, quantity=wanted.quantity, state="placed"))
            session.flush()
            placed = OrderPlaced(number, wanted.item, wanted.quantity)
            outbox.add(session, Event(placed, aggregate=("order", number)))
            if wanted.voucher is not None:
                session.add(Voucher(code=wanted.voucher, number=number))
            session.commit()
        except IntegrityError as error:
            session.rollback()
            raise HTTPException(409, "this voucher, or this number, is taken") from error
    return {"number": number, "state": "placed"}


@app.get("/orders/{number}")
def show(number: str) -> dict[str, str]:
    """How an order stands."""
    with Session(engine) as session:
        order = session.get(Order, number)
    if order is None:
        raise HTTPException(404, "no such order")
    return {"number": number, "state": order.state, "reason": order.reason}
