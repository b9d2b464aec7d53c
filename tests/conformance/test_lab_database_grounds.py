"""What every database under the lab must do: the same tests on SQLite, PostgreSQL, MySQL and (long) MariaDB."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from _pytest.mark import ParameterSet
from sqlalchemy import Connection, Engine, create_engine, insert, make_url, text

from pillarbox import Event, Inbox, Outbox, relay_for
from pillarbox.errors import BadUrl
from pillarbox.lab.engines import plain_engine
from pillarbox.lab.grounds import broker_ground, database_ground, refuse_foreign, remove_leftovers
from pillarbox.lab.grounds.claims import MARK
from pillarbox.lab.grounds.mysql import MARKER
from pillarbox.lab.grounds.servers import foreign_databases
from pillarbox.lab.grounds.tables import lab_alarm, lab_notification
from pillarbox.lab.model import EventId, Facts, NotVisible, Record, Row
from pillarbox.lab.ports import PREFIX, Address, BrokerGround, DatabaseGround
from pillarbox.store.engines import relay_engine
from tests.servers import fresh_database
from tests.services_fixtures import _need


def long(name: str) -> ParameterSet:
    """Among the tests that take minutes: making and removing two databases takes seconds on these."""
    return pytest.param(name, marks=pytest.mark.long)


@pytest.fixture(autouse=True, scope="module")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mysql", long("mariadb")])
def database_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(database_name: str, request: pytest.FixtureRequest) -> str | None:
    """The URL as it is given to the lab; None: SQLite."""
    return None if database_name == "sqlite" else _need(request, database_name).url


@pytest.fixture(scope="module")
def ground(server: str | None) -> Iterator[DatabaseGround]:
    """One for all tests that only add events of their own."""
    with database_ground(server, "W2-S5-row") as made:
        yield made


@pytest.fixture(scope="module")
def shop(ground: DatabaseGround) -> Iterator[Engine]:
    engine = relay_engine(ground.shop_url)
    yield engine
    engine.dispose()


@pytest.fixture
def broker() -> Iterator[BrokerGround]:
    with broker_ground(None, "W2-S5-row") as made:
        yield made


def _id() -> EventId:
    return EventId(str(uuid4()))


def _status(facts: Facts) -> str | None:
    assert isinstance(facts.outbox, Row)
    return facts.outbox.columns["status"]


def _raise_alarm(connection: Connection, event_id: EventId) -> None:
    connection.execute(insert(lab_alarm), {"event_id": event_id, "device": "boiler-7"})


class TestFacts:
    @pytest.mark.parametrize("ownership", ["row", "partition"])
    def test_an_event_is_followed_from_its_row_to_its_effects(
        self, ground: DatabaseGround, shop: Engine, broker: BrokerGround, ownership: str
    ) -> None:
        event, began = _id(), time.time()
        with shop.begin() as connection:
            _raise_alarm(connection, event)
            told = Event({"celsius": 91}, type="lab.test", aggregate=("device", "boiler-7"), id=UUID(event))
            Outbox().add(connection, told, to=broker.destination)
        (before,) = ground.facts([event], broker.records())
        assert _status(before) == "PENDING"
        assert before.records == before.history == ()

        relay_for(ground.shop_url, broker.url, ownership=ownership).run(until_empty=True)  # type: ignore[arg-type]
        consumers = relay_engine(ground.consumers_url)
        with consumers.begin() as connection:
            assert Inbox("bell").once(connection, event)
            connection.execute(insert(lab_notification), {"consumer": "bell", "event_id": event})
        with consumers.begin() as connection:
            connection.execute(insert(lab_notification), {"consumer": "log", "event_id": event})
            connection.execute(insert(lab_notification), {"consumer": "log", "event_id": event})
        consumers.dispose()

        (after,) = ground.facts([event], broker.records())
        ended = time.time()
        assert after.business is not None
        assert after.business.columns["device"] == "boiler-7"
        assert _status(after) == "SENT"
        assert [row.table for row in after.history] == ["outbox_receipt"]
        assert not isinstance(after.records, NotVisible)
        assert [record.event_id for record in after.records] == [event]
        assert {name: len(rows) for name, rows in after.marks.items()} == {"bell": 1}
        assert {name: len(rows) for name, rows in after.effects.items()} == {"bell": 1, "log": 2}
        for row in (after.business, *after.history, *after.marks["bell"], *after.effects["log"]):
            assert row.at is not None
            assert began - 0.1 <= row.at - ground.clock_offset() <= ended + 0.1, row

    def test_what_was_rolled_back_is_not_there(self, ground: DatabaseGround, shop: Engine) -> None:
        event = _id()
        with shop.connect() as connection:
            _raise_alarm(connection, event)
            Outbox().add(connection, Event({}, type="lab.test", id=UUID(event)), to="alarms")
            connection.rollback()
        (found,) = ground.facts([event], ())
        assert found.business is None
        assert found.outbox is None
        assert found.history == ()

    def test_uncommitted_rows_of_a_session_that_is_still_open_are_not_seen_and_not_waited_for(
        self, ground: DatabaseGround, shop: Engine
    ) -> None:
        event, began = _id(), time.monotonic()
        with shop.connect() as connection:
            _raise_alarm(connection, event)
            (found,) = ground.facts([event], ())
            assert found.business is None
        assert time.monotonic() - began < 2

    def test_events_come_in_the_order_asked_for_and_then_those_that_only_the_broker_knows(
        self, ground: DatabaseGround
    ) -> None:
        first, second, ghost = _id(), _id(), _id()
        record = Record(ghost, "alarms[0]@0", {"id": ghost})
        found = ground.facts([second, first], [record, Record(first, "alarms[0]@1", {}), record])
        assert [one.event_id for one in found] == [second, first, ghost]
        assert found[2].records == (record, record)

    def test_records_that_are_not_visible_stay_that(self, ground: DatabaseGround) -> None:
        (found,) = ground.facts([_id()], NotVisible("no broker"))
        assert found.records == NotVisible("no broker")

    def test_a_thousand_events_are_read_at_once(self, ground: DatabaseGround, shop: Engine) -> None:
        events = [_id() for _ in range(1_000)]
        with shop.begin() as connection:
            connection.execute(insert(lab_alarm), [{"event_id": one, "device": "boiler-7"} for one in events])
        assert all(one.business is not None for one in ground.facts(events, ()))

    def test_moments_are_as_fine_as_the_server_has_them(self, ground: DatabaseGround, shop: Engine) -> None:
        events = [_id() for _ in range(3)]
        for event in events:
            with shop.begin() as connection:
                _raise_alarm(connection, event)
        rows = [one.business for one in ground.facts(events, ())]
        finer_than_milliseconds = any(row and row.at and round(row.at * 1e6) % 1_000 for row in rows)
        assert finer_than_milliseconds == (ground.name != "sqlite")


class TestSettings:
    def test_it_says_what_it_is_and_what_an_application_gets(self, ground: DatabaseGround, database_name: str) -> None:
        found = ground.settings()
        assert found["database"] == ground.name == database_name
        assert re.match(r"\d+\.\d+", found["server_version"])
        assert found["autocommit"] is False
        expected = {"sqlite": "SERIALIZABLE", "postgres": "READ COMMITTED"}
        assert found["isolation_level"] == expected.get(database_name, "REPEATABLE READ")
        assert found["relay_isolation_level"] == expected.get(database_name, "READ COMMITTED")
        durability = {
            "sqlite": {"journal_mode": "wal", "synchronous": "FULL"},
            "postgres": {"synchronous_commit": "on"},
        }
        for name, value in durability.get(database_name, {}).items():
            assert found[name] == value
        if database_name in ("mysql", "mariadb"):
            assert found["innodb_flush_log_at_trx_commit"] in ("0", "1", "2")
            assert isinstance(found["sync_binlog"], str)

    def test_its_clock_is_near_ours(self, ground: DatabaseGround) -> None:
        assert abs(ground.clock_offset()) < 0.5

    def test_a_proxy_can_stand_before_a_server_and_not_before_a_file(
        self, ground: DatabaseGround, database_name: str
    ) -> None:
        there = ground.through(ground.shop_url, 20_001)
        if database_name == "sqlite":
            assert ground.address is None
            assert there == ground.shop_url
            return
        url = make_url(ground.shop_url)
        assert ground.address == Address(str(url.host), url.port or 0)
        assert make_url(there) == url.set(host="127.0.0.1", port=20_001)


@pytest.mark.parametrize("database_name", ["sqlite", "postgres", *map(long, ("mysql", "mariadb"))], indirect=True)
class TestTwoAtOnce:
    def test_a_second_one_sees_and_removes_nothing_of_the_first_and_ends_also_after_an_error_with_locks_held_in_it(
        self, server: str | None, ground: DatabaseGround, shop: Engine
    ) -> None:
        event = _id()
        with shop.begin() as connection:
            _raise_alarm(connection, event)
        urls: list[str] = []

        def fail() -> None:
            with database_ground(server, "W1-S1") as other:
                urls.extend((other.shop_url, other.consumers_url))
                assert other.facts([event], ())[0].business is None
                locks = stack.enter_context(plain_engine(other.shop_url).connect())
                stack.callback(locks.invalidate)
                _raise_alarm(locks, event)
                raise ZeroDivisionError

        with ExitStack() as stack:
            began = time.monotonic()
            with pytest.raises(ZeroDivisionError):
                fail()
            assert time.monotonic() - began < 20
        assert not any(map(_is_there, urls))
        refuse_foreign(server, None)
        assert remove_leftovers(server, None) == []
        assert ground.facts([event], ())[0].business is not None


class TestNames:
    @pytest.fixture(autouse=True)
    def on_a_server(self, server: str | None) -> None:
        if server is None:
            pytest.skip("a file has no names on a server")

    def test_a_namesake_is_foreign_and_left_alone(self, server: str) -> None:
        # Not the lab's own prefix: labs of other tests on this server would rightly refuse to run meanwhile.
        with fresh_database(server) as url:
            name = str(make_url(url).database)
            assert foreign_databases(server, name) == [name]
            assert remove_leftovers(server, None) == []
            assert _is_there(url)

    def test_its_own_are_known_by_their_mark_also_on_another_machine(
        self, server: str, ground: DatabaseGround, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        name = str(make_url(ground.shop_url).database)
        assert foreign_databases(server, name) == []
        assert remove_leftovers(server, None) == [], "it may live there"
        assert _is_there(ground.shop_url)

    def test_without_the_mark_a_name_is_its_own_by_the_journal_alone(
        self, server: str, ground: DatabaseGround, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = str(make_url(ground.consumers_url).database)
        with _unmarked(ground.consumers_url, name):
            assert foreign_databases(server, name) == []
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
            assert foreign_databases(server, name) == [name]
        assert foreign_databases(server, name) == []

    def test_names_have_the_prefix_and_a_part_of_their_own(self, ground: DatabaseGround) -> None:
        for url, part in ((ground.shop_url, "shop"), (ground.consumers_url, "consumers")):
            assert re.fullmatch(f"{PREFIX}[0-9a-f]{{12}}_{part}", str(make_url(url).database))


def test_sqlite_files_are_made_by_the_lab_alone() -> None:
    with pytest.raises(BadUrl, match="its own SQLite files"), database_ground("sqlite:///shop.db", "W1-S1"):
        pass


def _is_there(url: str) -> bool:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return Path(str(parsed.database)).exists()
    names = {"postgresql": "SELECT datname FROM pg_database"}.get(parsed.get_backend_name(), "SHOW DATABASES")
    engine = create_engine(
        parsed.set(database="postgres" if parsed.get_backend_name() == "postgresql" else "information_schema")
    )
    with engine.connect() as connection:
        found = set(connection.scalars(text(names)))
    engine.dispose()
    return parsed.database in found


@contextmanager
def _unmarked(url: str, name: str) -> Iterator[None]:
    """As if it had been killed before it set the mark; for a moment only, since other labs would refuse to run."""
    postgres = url.startswith("postgresql")
    engine = create_engine(url)
    with engine.begin() as connection:
        unmark = f'COMMENT ON DATABASE "{name}" IS NULL' if postgres else f"DROP TABLE {MARKER}"
        connection.exec_driver_sql(unmark)
    try:
        yield
    finally:
        mark = MARK.replace("'", "''")
        with engine.begin() as connection:
            connection.exec_driver_sql(
                f"COMMENT ON DATABASE \"{name}\" IS '{mark}'"
                if postgres
                else f"CREATE TABLE {MARKER} (one INT PRIMARY KEY) COMMENT = '{mark}'"
            )
        engine.dispose()
