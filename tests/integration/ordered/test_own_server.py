"""What can only be done to a database server that nobody else uses: crash it, fill its disk, prepare transactions."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from pillarbox.publish.memory import MemoryPublisher
from tests.crash.ordered_lab import Lab, wait_until
from tests.integration.ordered.test_late_commits import prepared
from tests.integration.ordered.working import relay, wrong
from tests.own_postgres import OwnPostgres, own_postgres

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    try:
        with own_postgres() as server:
            yield server
    except FileNotFoundError as error:
        if os.environ.get("PILLARBOX_REQUIRE_SERVICES") == "1":
            raise
        pytest.skip(f"PostgreSQL's programs are not installed: {error}")


@pytest.fixture
def own(server: OwnPostgres, tmp_path: Path) -> Iterator[Lab]:
    """An empty database on it."""
    lab = Lab(server.url, "orders", tmp_path)
    yield lab
    lab.execute("DROP SCHEMA public CASCADE")
    lab.execute("CREATE SCHEMA public")
    lab.close()


def test_a_server_that_crashes_twice_under_load_loses_nothing(
    server: OwnPostgres, own: Lab, broker: MemoryPublisher
) -> None:
    with relay(own.url, broker, "a") as one, relay(own.url, broker, "b"):
        with own.load() as load:
            for _ in range(2):
                sent = own.sent()
                wait_until(lambda sent=sent: own.sent() > sent + 50, 20, "going on")
                server.kill()
                time.sleep(0.5)  # not for a result: so long it is away
                server.start()
            sent = own.sent()
            wait_until(lambda: own.sent() > sent + 50, 20, "going on")
        wait_until(lambda: own.waiting() == 0, 30, "the end")
    assert load.lost > 0
    assert one.stats.database_errors > 0
    assert wrong(own, broker) == []


def test_a_disk_that_is_full_for_a_while_is_waited_for(server: OwnPostgres, own: Lab, broker: MemoryPublisher) -> None:
    if not server.mount_small():
        pytest.skip("no right to mount a small file system")
    own_connection = own.world.engine.execution_options(isolation_level="AUTOCOMMIT")
    with own_connection.connect() as connection:
        connection.exec_driver_sql(f"CREATE TABLESPACE small LOCATION '{server.small}'")
        connection.exec_driver_sql("ALTER TABLE outbox_receipt SET TABLESPACE small")  # writers go on
    try:
        with relay(own.url, broker) as one:
            with own.load():
                wait_until(lambda: own.sent() > 50, 20, "the beginning")
                _fill(own)
                wait_until(lambda: one.stats.database_errors > 0, 30, "a full disk")
                own.execute("DROP TABLE filler")
                sent = own.sent()
                wait_until(lambda: own.sent() > sent + 50, 30, "going on")
            wait_until(lambda: own.waiting() == 0, 30, "the end")
        assert wrong(own, broker) == []
    finally:
        own.execute("DROP SCHEMA public CASCADE")
        own.execute("CREATE SCHEMA public")
        with own_connection.connect() as connection:
            connection.exec_driver_sql("DROP TABLESPACE small")


def _fill(lab: Lab) -> None:
    """Large pieces, and then ever smaller ones, until no page is left."""
    lab.execute("CREATE TABLE filler (f text) TABLESPACE small")
    for count in (1_000, 100, 10, 1, 1, 1):
        try:
            while True:
                lab.execute(f"INSERT INTO filler SELECT repeat('x', 1900) FROM generate_series(1, {count})")
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", "") != "53100":
                raise


def test_a_prepared_transaction_is_found_when_it_is_committed(own: Lab, broker: MemoryPublisher) -> None:
    with relay(own.url, broker) as one:
        with own.load():
            wait_until(lambda: one.stats.sent > 20)
            with prepared(own):
                sent = one.stats.sent
                time.sleep(1.5)  # not for a result: so long it has to stay prepared
                assert one.stats.sent > sent + 20
            own.add("late")
        wait_until(lambda: own.waiting() == 0, 20, "the end")
    assert wrong(own, broker) == []
    assert sum(message.key == "late" for message in broker.arrived) == 2
