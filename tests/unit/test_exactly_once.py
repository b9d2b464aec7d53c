"""The assertion that each event had its effect once: on SQLite, with every way of naming rows and ids."""

import re
import threading
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Column, Engine, Integer, LargeBinary, MetaData, String, Table, create_engine, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import StaticPool

from pillarbox.errors import WrongColour
from pillarbox.testing import assert_exactly_once_effect


class Base(DeclarativeBase):
    pass


class Payment(Base):
    __tablename__ = "payment"
    id: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[UUID]


payment = Base.metadata.tables["payment"]
other = Table(
    "other", MetaData(), Column("id", Integer, primary_key=True), Column("ref", String(36)), Column("raw", LargeBinary)
)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    other.create(engine)
    yield engine
    engine.dispose()


def pay(engine: Engine, *event_ids: UUID) -> None:
    with engine.begin() as connection:
        connection.execute(insert(payment), [{"event_id": one} for one in event_ids])


def test_all_once_passes_whatever_names_the_rows_and_the_ids(engine: Engine) -> None:
    ids = [uuid4(), uuid4()]
    pay(engine, *ids)
    texts = [str(one) for one in ids]
    with engine.begin() as connection:
        connection.execute(insert(other), [{"ref": one.hex.upper(), "raw": one.bytes} for one in ids])
    named = (payment, Payment, payment.c.event_id, Payment.event_id, select(Payment.event_id), other.c.ref, other.c.raw)
    for effects in named:
        assert_exactly_once_effect(engine, effects, ids)
        assert_exactly_once_effect(engine, effects, texts)
    with engine.connect() as connection, Session(engine) as session:
        assert_exactly_once_effect(connection, payment, ids)
        assert_exactly_once_effect(session, payment, ids)


def test_what_is_missing_doubled_and_foreign_is_named(engine: Engine) -> None:
    fine, missing, doubled, foreign = (uuid4() for _ in range(4))
    pay(engine, fine, doubled, doubled, doubled, foreign)
    with pytest.raises(AssertionError) as failed:
        assert_exactly_once_effect(engine, payment, [fine, missing, doubled])
    assert str(failed.value).splitlines() == [
        "1 of 3 events had their effect exactly once.",
        f"  missing (1): {missing}",
        f"  doubled (1): {doubled} (3 times)",
        f"  foreign (1): {foreign} (1 times)",
    ]


def test_a_long_list_is_cut(engine: Engine) -> None:
    with pytest.raises(AssertionError, match=re.escape("missing (30): ")) as failed:
        assert_exactly_once_effect(engine, payment, [uuid4() for _ in range(30)])
    assert str(failed.value).endswith(", and 20 more")


def test_an_effect_that_comes_later_is_waited_for(engine: Engine) -> None:
    event_id = uuid4()
    timer = threading.Timer(0.1, pay, (engine, event_id))
    timer.start()
    assert_exactly_once_effect(engine, payment, [event_id], within=10)
    timer.join()


def test_a_doubled_effect_is_not_waited_for(engine: Engine) -> None:
    event_id = uuid4()
    pay(engine, event_id, event_id)
    with pytest.raises(AssertionError, match="doubled"):
        assert_exactly_once_effect(engine, payment, [event_id, uuid4()], within=60)


def test_no_event_means_no_effect(engine: Engine) -> None:
    assert_exactly_once_effect(engine, payment, [])
    pay(engine, uuid4())
    with pytest.raises(AssertionError, match="foreign"):
        assert_exactly_once_effect(engine, payment, [])


def test_what_is_no_database_is_refused() -> None:
    with pytest.raises(WrongColour, match="str"):
        assert_exactly_once_effect("sqlite://", payment, [])  # type: ignore[arg-type]
