"""The order service, in three ways of telling the world: inside the transaction, after the commit, by the outbox."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from sqlalchemy import Engine, String, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from .. import faultpoints
from ..event.destination import Destination
from ..event.event import Event, to_message
from ..event.ids import EventIds
from ..event.types import event_type
from ..outbox import Outbox
from ..ports import Confirmed, Publisher
from .options import Way


class ShopTables(DeclarativeBase):
    """Tables of the order service."""


class Order(ShopTables):
    """An order that was really placed. ``event_id`` is the event that must tell of it."""

    __tablename__ = "demo_order"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    total: Mapped[str] = mapped_column(String(32))
    event_id: Mapped[str] = mapped_column(String(36))


@event_type("demo.order-placed", version=1)
@dataclass(frozen=True, slots=True)
class OrderPlaced:
    """What the stock service is told."""

    number: int
    total: Decimal


class CardDeclined(Exception):
    """The order fails late, when its event is already written or sent."""


Place = Callable[[int], None]


def failing_orders(orders: int, share: float, seed: int) -> frozenset[int]:
    """Which order numbers (from 1) fail."""
    return frozenset(random.Random(seed).sample(range(1, orders + 1), round(orders * share)))


def placing(way: Way, engine: Engine, to: Destination, publisher: Publisher | None, failing: frozenset[int]) -> Place:
    """The function that places one order, the given way."""
    if way == "outbox":
        return _with_outbox(engine, to, failing)
    assert publisher is not None
    return _inside(engine, to, publisher, failing) if way == "inside" else _after(engine, to, publisher, failing)


def _with_outbox(engine: Engine, to: Destination, failing: frozenset[int]) -> Place:
    outbox, ids = Outbox(bind=engine), EventIds()

    def place(number: int) -> None:
        event, order = _order(number, ids.new())
        with Session(engine) as session, session.begin():
            session.execute(insert(Order), [order])
            outbox.add(session, event, to=to)
            _pay(number, failing)
            faultpoints.reach("shop.before-commit")
        faultpoints.reach("shop.after-commit")

    return place


def _inside(engine: Engine, to: Destination, publisher: Publisher, failing: frozenset[int]) -> Place:
    ids = EventIds()

    def place(number: int) -> None:
        event, order = _order(number, ids.new())
        with Session(engine) as session, session.begin():
            session.execute(insert(Order), [order])
            _send(publisher, event, to)
            _pay(number, failing)
            faultpoints.reach("shop.before-commit")

    return place


def _after(engine: Engine, to: Destination, publisher: Publisher, failing: frozenset[int]) -> Place:
    ids = EventIds()

    def place(number: int) -> None:
        event, order = _order(number, ids.new())
        with Session(engine) as session, session.begin():
            session.execute(insert(Order), [order])
            _pay(number, failing)
        faultpoints.reach("shop.after-commit")
        _send(publisher, event, to)

    return place


def _order(number: int, event_id: UUID) -> tuple[Event[OrderPlaced], dict[str, object]]:
    total = Decimal(number) + Decimal("0.90")
    event = Event(OrderPlaced(number, total), aggregate=("order", number), id=event_id)
    return event, {"number": number, "total": str(total), "event_id": str(event_id)}


def _pay(number: int, failing: frozenset[int]) -> None:
    if number in failing:
        raise CardDeclined(number)


def _send(publisher: Publisher, event: Event[OrderPlaced], to: Destination) -> None:
    assert event.id is not None
    message = to_message(event, to, event_id=event.id, occurred_at=datetime.now(UTC))  # type: ignore[arg-type]
    (outcome,) = publisher.publish([message])
    if not isinstance(outcome, Confirmed):
        raise RuntimeError(f"the naive shop could not send: {outcome}")
