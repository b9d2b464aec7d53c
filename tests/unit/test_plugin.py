"""The fixture ``pillarbox_outbox``, as a user's test would use it: no broker, the user's own engine."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from pillarbox import AsyncOutbox, Consumer, Event, Exchange, Outbox, Received, event_type, install, sqlite_engine
from pillarbox.errors import CannotDecode, TablesMissing
from pillarbox.store.engines import use_explicit_begin
from pillarbox.testing.recorder import OutboxRecorder

tables = MetaData()
stock = Table("stock", tables, Column("order_id", Integer, primary_key=True), Column("total", String(20)))


@event_type("order.created", version=2)
@dataclass(frozen=True, slots=True)
class OrderCreated:
    total: Decimal


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = sqlite_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    install(engine)
    tables.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def consumer(engine: Engine) -> Consumer:
    consumer = Consumer("stock", database=engine, broker="kafka://nowhere:9092", sources=["orders"])

    @consumer.on(OrderCreated)
    def reserve(event: Received[OrderCreated], session: Session) -> None:
        assert event.aggregate is not None
        session.execute(insert(stock).values(order_id=int(event.aggregate[1]), total=str(event.payload.total)))

    return consumer


def create_order(engine: Engine, number: int, total: str = "19.90", to: str = "orders") -> None:
    outbox = Outbox(bind=engine)
    with Session(engine) as session, session.begin():
        outbox.add(session, Event(OrderCreated(Decimal(total)), aggregate=("order", number)), to=to)


def reserved(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(stock)) or 0)


def test_a_committed_event_is_seen_with_its_typed_payload(engine: Engine, pillarbox_outbox: OutboxRecorder) -> None:
    create_order(engine, 7)
    event = pillarbox_outbox.committed(OrderCreated).one()
    assert event.payload == OrderCreated(Decimal("19.90"))
    assert (event.type, event.version, event.aggregate, event.key) == ("order.created", 2, ("order", "7"), "7")
    assert (event.to, event.id.version, event.occurred_at.utcoffset() is not None) == ("orders", 7, True)
    assert pillarbox_outbox.committed("order.created").one().payload == {"total": "19.90"}
    assert len(pillarbox_outbox.committed()) == 1


def test_what_was_rolled_back_is_not_seen(engine: Engine, pillarbox_outbox: OutboxRecorder) -> None:
    outbox = Outbox(bind=engine)
    with Session(engine) as session:
        outbox.add(session, Event(OrderCreated(Decimal(1)), aggregate=("order", 1)), to="orders")
        session.rollback()
        with session.begin_nested():
            outbox.add(session, Event(OrderCreated(Decimal(2)), aggregate=("order", 2)), to="orders")
        savepoint = session.begin_nested()
        outbox.add(session, Event(OrderCreated(Decimal(3)), aggregate=("order", 3)), to="orders")
        savepoint.rollback()
        assert len(pillarbox_outbox.committed()) == 0
        session.commit()
    assert [event.payload.total for event in pillarbox_outbox.committed(OrderCreated)] == [Decimal(2)]


def test_one_says_what_there_is_instead(engine: Engine, pillarbox_outbox: OutboxRecorder) -> None:
    with pytest.raises(AssertionError, match="found 0; committed were: nothing"):
        pillarbox_outbox.committed(OrderCreated).one()
    create_order(engine, 1)
    create_order(engine, 2)
    with pytest.raises(AssertionError, match=r"found 2; committed were: order.created, order.created"):
        pillarbox_outbox.committed(OrderCreated).one()
    with pytest.raises(AssertionError, match=r"found 0; committed were: order.created"):
        pillarbox_outbox.committed("order.paid").one()
    assert [event.aggregate for event in pillarbox_outbox.committed(OrderCreated).all()] == [
        ("order", "1"),
        ("order", "2"),
    ]


def test_events_are_delivered_once_through_the_real_inbox(
    engine: Engine, consumer: Consumer, pillarbox_outbox: OutboxRecorder
) -> None:
    create_order(engine, 1)
    create_order(engine, 2)
    assert pillarbox_outbox.deliver_to(consumer).applied == 2
    assert pillarbox_outbox.deliver_to(consumer).received == 0
    create_order(engine, 3)
    assert pillarbox_outbox.deliver_to(consumer).applied == 1
    again = pillarbox_outbox.deliver_to(consumer, again=True)
    assert (again.duplicates, again.applied) == (3, 0)
    assert reserved(engine) == 3


def test_events_for_other_topics_do_not_reach_the_consumer(
    engine: Engine, consumer: Consumer, pillarbox_outbox: OutboxRecorder
) -> None:
    create_order(engine, 1, to="elsewhere")
    assert pillarbox_outbox.deliver_to(consumer).received == 0


def test_an_event_with_several_destinations_is_one_event(engine: Engine, pillarbox_outbox: OutboxRecorder) -> None:
    outbox = Outbox(bind=engine)
    with Session(engine) as session, session.begin():
        outbox.add(session, Event({"a": 1}, type="x.happened", headers={"h": "1"}), to=[Exchange("shop", "x"), "audit"])
    event = pillarbox_outbox.committed("x.happened").one()
    assert event.to == Exchange("shop", "x")
    assert [place.name for place in event.destinations] == ["shop", "audit"]
    assert event.headers == {"h": "1"}


def test_what_a_handler_raises_is_what_the_test_sees(engine: Engine, pillarbox_outbox: OutboxRecorder) -> None:
    consumer = Consumer("stock", database=engine, broker="amqp://nowhere", sources=["stock-queue"])

    @consumer.on("order.created")
    def reserve(event: Received[dict[str, str]], session: Session) -> None:
        session.execute(insert(stock).values(order_id=1, total=event.payload["total"]))
        raise ValueError("no stock left")

    create_order(engine, 1)
    with pytest.raises(ValueError, match="no stock left"):
        pillarbox_outbox.deliver_to(consumer)
    assert reserved(engine) == 0


def test_a_body_that_does_not_fit_fails_the_test(engine: Engine, pillarbox_outbox: OutboxRecorder) -> None:
    consumer = Consumer("stock", database=engine, broker="amqp://nowhere", sources=["orders"])

    @consumer.on("order.created")
    def reserve(event: Received[list[int]]) -> None: ...

    create_order(engine, 1)
    with pytest.raises(CannotDecode):
        pillarbox_outbox.deliver_to(consumer)


def test_a_consumer_database_without_inbox_is_named(
    engine: Engine, tmp_path: Path, pillarbox_outbox: OutboxRecorder
) -> None:
    consumer = Consumer("x", database=f"sqlite:///{tmp_path / 'other.db'}", broker="kafka://x", sources=["orders"])
    consumer.on(OrderCreated)(_ignore)
    create_order(engine, 1)
    with pytest.raises(TablesMissing, match="--part inbox"):
        pillarbox_outbox.deliver_to(consumer)


async def _create_order_async(path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    use_explicit_begin(engine.sync_engine)
    async with AsyncSession(engine) as session, session.begin():
        await AsyncOutbox(engine).add(session, Event(OrderCreated(Decimal(5)), aggregate=("order", 5)), to="orders")
    await engine.dispose()


def test_async_code_is_seen_too(engine: Engine, tmp_path: Path, pillarbox_outbox: OutboxRecorder) -> None:
    asyncio.run(_create_order_async(tmp_path / "shop.db"))
    assert pillarbox_outbox.committed(OrderCreated).one().payload.total == Decimal(5)


def test_a_commit_that_fails_committed_nothing(engine: Engine, pillarbox_outbox: OutboxRecorder) -> None:
    outbox = Outbox(bind=engine)
    with engine.connect() as connection:
        driver = connection.connection.dbapi_connection
        assert driver is not None
        driver.execute("PRAGMA foreign_keys = ON")  # type: ignore[attr-defined]  # has no effect inside a transaction
        connection.exec_driver_sql("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql("CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
        connection.commit()
        outbox.add(connection, Event(OrderCreated(Decimal(1)), aggregate=("order", 1)), to="orders")
        connection.exec_driver_sql("INSERT INTO child VALUES (1)")
        with pytest.raises(Exception, match="FOREIGN KEY"):
            connection.commit()
    assert len(pillarbox_outbox.committed()) == 0


def _ignore(event: Received[OrderCreated]) -> None: ...
