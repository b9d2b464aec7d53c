"""A MySQL server that crashes, refuses writes and runs out of disk under either kind of relay: it is waited for,
nothing is lost, nothing is charged, and the relay goes on by itself."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy.exc import DBAPIError

from pillarbox.publish.memory import MemoryPublisher
from services.process import ServiceError
from tests.crash.ordered_lab import Lab, wait_until
from tests.integration.ordered.working import lost_or_dead, out_of_order, relay, row_relay
from tests.own_mysql import OwnMySQL, own_mysql

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]


class Kind(NamedTuple):
    """A kind of relay, and whether it promises order."""

    relay: Callable[..., AbstractContextManager[Any]]
    ordered: bool


KINDS = {"partition": Kind(relay, True), "row": Kind(row_relay, False)}


@pytest.fixture(scope="module")
def server() -> Iterator[OwnMySQL]:
    try:
        with own_mysql() as server:
            yield server
    except (FileNotFoundError, ServiceError) as error:
        if os.environ.get("PILLARBOX_REQUIRE_SERVICES") == "1":
            raise
        pytest.skip(f"MySQL's programs are not there: {error}")


@pytest.fixture
def own(server: OwnMySQL, tmp_path: Path) -> Iterator[Lab]:
    """An empty database on it."""
    lab = Lab(server.url, "orders", tmp_path)
    yield lab
    lab.close()
    server.execute("DROP DATABASE pillarbox", "CREATE DATABASE pillarbox")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def going_on(own: Lab) -> None:
    sent = own.sent()
    wait_until(lambda: own.sent() > sent + 50, 30, "going on")


def is_well(own: Lab, kind: Kind, broker: MemoryPublisher) -> None:
    """All is sent, nothing was charged for the trouble, and a relay that promises order has kept it."""
    wait_until(lambda: own.waiting() == 0, 30, "the end")
    assert lost_or_dead(own, broker.arrived) == []
    if kind.ordered:
        assert out_of_order(own, broker.arrived) == []


def test_a_server_that_is_killed_twice_under_load_loses_nothing(
    server: OwnMySQL, own: Lab, kind: Kind, broker: MemoryPublisher
) -> None:
    with kind.relay(own.url, broker, "a") as one, kind.relay(own.url, broker, "b"):
        with own.load() as load:
            for _ in range(2):
                going_on(own)
                server.kill()
                wait_until(lambda: load.lost > 0, 10, "a lost server")
                server.start()
                load.lost = 0
            going_on(own)
        is_well(own, kind, broker)
    assert one.stats.database_errors > 0
    assert one.stats.retried == one.stats.dead == 0


def test_a_server_that_takes_no_writes_for_a_while_is_waited_for(
    server: OwnMySQL, own: Lab, kind: Kind, broker: MemoryPublisher
) -> None:
    """As after a failover to a replica: its connections stay, and error 1290 meets every write."""
    with kind.relay(own.url, broker) as one:
        with own.load() as load:
            going_on(own)
            server.execute("SET GLOBAL super_read_only = ON")
            wait_until(lambda: load.lost > 0 and one.stats.database_errors > 1, 20, "a refused write")
            before = own.sent()
            time.sleep(1)  # not for a result: longer than a third of the lease without a write
            assert own.sent() == before
            server.execute("SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")
            going_on(own)
        is_well(own, kind, broker)
    assert one.stats.retried == one.stats.dead == 0


def test_a_disk_that_is_full_for_a_while_is_waited_for(
    server: OwnMySQL, own: Lab, kind: Kind, broker: MemoryPublisher
) -> None:
    """Error 1114 from a settlement: its receipts have no room, and writers go on."""
    space = server.small_tablespace()
    own.execute(f"ALTER TABLE outbox_receipt TABLESPACE {space}")
    try:
        with kind.relay(own.url, broker) as one:
            with own.load():
                going_on(own)
                fill(own, space)
                wait_until(lambda: one.stats.database_errors > 0, 30, "a full disk")
                own.execute("DROP TABLE filler")
                going_on(own)
            is_well(own, kind, broker)
        assert one.stats.retried == one.stats.dead == 0
    finally:
        own.execute("DROP TABLE IF EXISTS filler")
        own.execute("DROP TABLE outbox_receipt")
        server.drop_small_tablespace()


def fill(own: Lab, space: str) -> None:
    """Large pieces, and then smaller ones, until no page is left."""
    own.execute(f"CREATE TABLE filler (id INT AUTO_INCREMENT PRIMARY KEY, f LONGBLOB) TABLESPACE {space}")
    for size in (60_000, 10_000, 200):
        with pytest.raises(DBAPIError, match="1114"):
            insert_for_ever(own, size)


def insert_for_ever(own: Lab, size: int) -> None:
    while True:
        own.execute(f"INSERT INTO filler (f) VALUES (REPEAT('x', {size}))")
