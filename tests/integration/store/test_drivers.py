"""A relay on the drivers that are not the default: psycopg2, and MySQLdb (mysqlclient)."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from sqlalchemy import make_url

from pillarbox.event.destination import Destination
from pillarbox.ports import Settled, Settlement
from pillarbox.store.dead import DeadFilter
from pillarbox.store.inspect import overview
from pillarbox.store.replay import replay
from pillarbox.testing.conformance.store_world import all_sent, event, failed
from tests.sql_outbox import SqlOutbox

pytestmark = pytest.mark.services


@pytest.fixture
def psycopg2_outbox(postgres_url: str) -> Iterator[SqlOutbox]:
    yield from opened(postgres_url, "postgresql+psycopg2")


@pytest.fixture
def mysqldb_outbox(mysqldb: ModuleType, mysql_url: str) -> Iterator[SqlOutbox]:
    yield from opened(mysql_url, "mysql+mysqldb")


def opened(url: str, driver: str) -> Iterator[SqlOutbox]:
    outbox = SqlOutbox(make_url(url).set(drivername=driver).render_as_string(hide_password=False))
    yield outbox
    outbox.close()


def test_psycopg2_carries_a_relay(psycopg2_outbox: SqlOutbox) -> None:
    carries_a_relay(psycopg2_outbox)


def test_mysqldb_carries_a_relay(mysqldb_outbox: SqlOutbox) -> None:
    carries_a_relay(mysqldb_outbox)


def carries_a_relay(outbox: SqlOutbox) -> None:
    """The whole life of an event, with everything that drivers convert each in their own way."""
    messages = [event(key=f"ключ-{n}", payload=bytes(range(256)) * n, headers='{"a":"☃"}') for n in (0, 1, 300)]
    outbox.add(messages, [Destination("audit", "r-☃")])
    slow, quick = outbox.store("slow"), outbox.store("quick")
    old = slow.claim(10)
    found = {one.message.event_id: one.message for one in old.deliveries if one.key.dest == 0}
    assert found == {one.event_id: one for one in messages}
    assert slow.renew(old.token, [one.key for one in old.deliveries]) == 6
    outbox.pass_time(61)
    new = quick.claim(10)
    assert len(slow.settle(all_sent(old.token, old.deliveries)).lost) == 6
    sent, retry, dead, back, *rest = new.deliveries
    parked = [failed(retry, due_in=1.5, error="100 %s\0 ☃"), failed(dead, due_in=None)]
    settlement = Settlement(new.token, all_sent(0, [sent, *rest]).sent, parked, [back.key])
    assert quick.settle(settlement) == quick.settle(settlement) == Settled(3, 2, 1)
    outbox.pass_time(2)
    assert quick.move_due(10) == 1
    with outbox.engine.begin() as connection:
        assert replay(connection, DeadFilter(), by="ann", reason="☃") == 1
        assert overview(connection).counts == {"PENDING": 3, "PROCESSING": 0, "RETRY": 0, "DEAD": 0, "SENT": 3}
    last = quick.claim(10)
    assert quick.settle(all_sent(last.token, last.deliveries)) == Settled(3, 0, 0)
    slow.close()
    quick.close()
