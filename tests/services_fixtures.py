"""Fixtures for real servers: each test has its own database, virtual host or topic, gone when it ends.

A server that is not there: the test is skipped with the reason, or fails if PILLARBOX_REQUIRE_SERVICES=1.
"""

import ctypes
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn, Protocol

import pytest
from confluent_kafka.admin import AdminClient

from tests.servers import (
    BROKERS,
    DATABASES,
    PREFIX,
    SERVERS,
    Found,
    bootstrap_of,
    create_topic,
    fresh_database,
    fresh_virtual_host,
    look_for,
    read_settings,
    wait_for_removals,
)

FOUND = pytest.StashKey[dict[str, Found]]()
SERVER_FIXTURES = {f"{name}_url" for name in SERVERS}


class MakeTopic(Protocol):
    """Makes a Kafka topic of 3 replicas; further arguments are its configuration, `_` standing for `.`."""

    def __call__(self, partitions: int = 6, **config: str) -> str: ...


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[FOUND] = {}


def pytest_report_header(config: pytest.Config) -> list[str]:
    found = [_find(config, name) for name in SERVERS]
    there = ", ".join(f"{one.name} {one.version}" for one in found if not one.problem)
    absent = ", ".join(one.name for one in found if one.problem)
    return [f"servers: {there or 'none'}"] + ([f"no server: {absent}"] if absent else [])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs a server, so that `-m "not services"` runs anywhere; and what needs Kafka, for fault lanes."""
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        chosen = {parameters.get("database_name", "sqlite"), parameters.get("broker_name", "none")} - {"sqlite", "none"}
        if chosen or names & (SERVER_FIXTURES | {"make_topic", "mysqldb"}):
            item.add_marker(pytest.mark.services)
        if names & {"kafka_url", "kafka_admin", "make_topic"} or parameters.get("broker_name") == "kafka":
            item.add_marker(pytest.mark.kafka)


def pytest_sessionfinish() -> None:
    wait_for_removals()


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    with fresh_database(_need(request, "postgres").url) as url:
        yield url


@pytest.fixture
def mysql_url(request: pytest.FixtureRequest) -> Iterator[str]:
    with fresh_database(_need(request, "mysql").url) as url:
        yield url


@pytest.fixture
def mysql57_url(request: pytest.FixtureRequest) -> Iterator[str]:
    with fresh_database(_need(request, "mysql57").url) as url:
        yield url


@pytest.fixture
def mariadb_url(request: pytest.FixtureRequest) -> Iterator[str]:
    with fresh_database(_need(request, "mariadb").url) as url:
        yield url


@pytest.fixture
def mariadb102_url(request: pytest.FixtureRequest) -> Iterator[str]:
    with fresh_database(_need(request, "mariadb102").url) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'test.db'}"


@pytest.fixture(params=["sqlite", *DATABASES])
def database_name(request: pytest.FixtureRequest) -> str:
    """Runs the test once for each database; to choose, parametrise `database_name` with `indirect=True`."""
    return str(request.param)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, database_name: str) -> str:
    """A SQLAlchemy URL (pysqlite, psycopg, PyMySQL) of an empty database of that kind, this test's own."""
    return str(request.getfixturevalue(f"{database_name}_url"))


@pytest.fixture
def rabbitmq_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An AMQP URL with a virtual host of this test's own."""
    url = _need(request, "rabbitmq").url
    with fresh_virtual_host(url, read_settings().get(f"{PREFIX}RABBITMQ_MANAGEMENT")) as own:
        yield own


@pytest.fixture
def kafka_url(request: pytest.FixtureRequest) -> str:
    """`kafka://host:port,host:port,host:port`. The cluster is shared: make topics with `make_topic`."""
    return _need(request, "kafka").url


@pytest.fixture
def nats_url(request: pytest.FixtureRequest) -> str:
    """`nats://host:port` of a server with JetStream. It is shared: make streams with `tests.nats_server.Streams`."""
    return _need(request, "nats").url


@pytest.fixture(params=BROKERS)
def broker_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker_url(request: pytest.FixtureRequest, broker_name: str) -> str:
    return str(request.getfixturevalue(f"{broker_name}_url"))


@pytest.fixture
def kafka_admin(kafka_url: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_of(kafka_url), "log_level": 0})


@pytest.fixture
def make_topic(kafka_admin: AdminClient) -> Iterator[MakeTopic]:
    """`make_topic(12)` is the name of a new topic with 12 partitions and 3 replicas; all are deleted afterwards."""
    made: list[str] = []

    def make(partitions: int = 6, **config: str) -> str:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        made.append(create_topic(kafka_admin, partitions, 3, settings))
        return made[-1]

    yield make
    if made:
        for deleted in kafka_admin.delete_topics(made, operation_timeout=20).values():
            deleted.result(30)


@pytest.fixture
def mysqldb() -> ModuleType:
    """The C driver MySQLdb of Debian, for `mysql+mysqldb://` URLs; it stays loaded for the rest of the run."""
    folder = read_settings().get(f"{PREFIX}MYSQLDB_PATH")
    if folder is None:
        _absent(f"{PREFIX}MYSQLDB_PATH is not set; python -m services up mysqldb")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("Debian 12 builds MySQLdb for Python 3.11 only")
    # The extension asks for libmariadb.so.3 by name: loaded before, it is found without LD_LIBRARY_PATH.
    ctypes.CDLL(str(Path(folder) / "libmariadb.so.3"), mode=ctypes.RTLD_GLOBAL)
    os.environ["MARIADB_PLUGIN_DIR"] = str(Path(folder) / "plugin")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("MySQLdb")


def _find(config: pytest.Config, name: str) -> Found:
    """Looks for a server once in a run."""
    known = config.stash[FOUND]
    if name not in known:
        known[name] = look_for(name, read_settings())
    return known[name]


def _need(request: pytest.FixtureRequest, name: str) -> Found:
    found = _find(request.config, name)
    if found.problem:
        _absent(found.problem)
    return found


def _absent(problem: str) -> NoReturn:
    if os.environ.get("PILLARBOX_REQUIRE_SERVICES") == "1":
        pytest.fail(problem, pytrace=False)
    pytest.skip(problem)
