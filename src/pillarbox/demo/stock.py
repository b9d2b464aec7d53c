"""The stock service: applies each order once with the inbox, or naively without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, String, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from .. import faultpoints
from ..consume import Consumer, Received
from ..ports import Source
from .shop import OrderPlaced


class StockTables(DeclarativeBase):
    """Tables of the stock service."""


class Movement(StockTables):
    """One taking from the shelf. Nothing unique about the order: doing it twice shows."""

    __tablename__ = "demo_movement"
    id: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[str] = mapped_column(String(36))
    number: Mapped[int]


def stock_consumer(name: str, engine: Engine, broker: str, source: str, options: Mapping[str, Any]) -> Consumer:
    """The consumer as a user would write it."""
    consumer = Consumer(name, database=engine, broker=broker, sources=[source], ahead=20, options=options)

    @consumer.on(OrderPlaced)
    def take(event: Received[OrderPlaced], session: Session) -> None:
        session.execute(insert(Movement), [{"event_id": event.id, "number": event.payload.number}])

    return consumer


def naive_loop(engine: Engine, source: Source) -> None:
    """What many services do: handle, commit, acknowledge. Runs until it is killed."""
    source.open()
    while True:
        for incoming in source.poll(0.2, 20):
            faultpoints.reach("consumer.received")
            with engine.begin() as connection:
                row = {"event_id": incoming.headers["id"], "number": int(incoming.headers["aggregateId"])}
                connection.execute(insert(Movement), [row])
            faultpoints.reach("consumer.after-commit")
            source.acknowledge([incoming])
