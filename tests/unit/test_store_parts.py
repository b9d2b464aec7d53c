"""Small parts of the store that need no database."""

import itertools
from datetime import UTC, datetime, timedelta, timezone

import pytest

from pillarbox.errors import BadUrl, ConfigError
from pillarbox.store.capabilities import of_version
from pillarbox.store.engines import relay_engine, sqlite_engine
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.store.tokens import Tokens
from pillarbox.testing.clock import FakeClock


@pytest.mark.parametrize(
    ("server", "text", "claim", "version"),
    [
        ("MySQL", "9.7.4", "skip-locked-mysql", (9, 7, 4)),
        ("MySQL", "8.0.36-28.1", "skip-locked-mysql", (8, 0, 36)),  # Percona
        ("MySQL", "8.0.0-dmr", "compare-and-set", (8, 0, 0)),
        ("MySQL", "5.7.22-log", "compare-and-set", (5, 7, 22)),
        ("MariaDB", "10.11.19-MariaDB-1:10.11.19+maria~deb12", "skip-locked-mysql", (10, 11, 19)),
        ("MariaDB", "5.5.5-10.2.11-MariaDB", "compare-and-set", (10, 2, 11)),
        ("MariaDB", "10.5.29-MariaDB-log", "compare-and-set", (10, 5, 29)),
        ("MariaDB", "10.6.1-MariaDB", "skip-locked-mysql", (10, 6, 1)),
        ("PostgreSQL", "15.18 (Debian 15.18-0+deb12u1)", "postgres", (15, 18)),
        ("PostgreSQL", "18beta1", "postgres", (18,)),
        ("SQLite", "3.40.1", "sqlite", (3, 40, 1)),
    ],
)
def test_the_servers_version_chooses_the_claim(server: str, text: str, claim: str, version: tuple[int, ...]) -> None:
    found = of_version(server, text)  # type: ignore[arg-type]
    assert (found.claim, found.version) == (claim, version)


@pytest.mark.parametrize(
    ("server", "text"),
    [("MySQL", "5.6.51"), ("MariaDB", "10.1.48-MariaDB"), ("PostgreSQL", "11.22"), ("SQLite", "3.7.17")],
)
def test_a_server_that_is_too_old_is_refused(server: str, text: str) -> None:
    with pytest.raises(BadUrl, match="too old"):
        of_version(server, text)  # type: ignore[arg-type]


def test_tokens_grow_whatever_the_clock_does() -> None:
    times = itertools.chain([5_000_000, 5_000_000, 1_000], itertools.repeat(9_000_000))
    tokens = Tokens(lambda: next(times))
    assert [tokens.next() for _ in range(5)] == [5_000, 5_001, 5_002, 9_000, 9_001]


@pytest.mark.parametrize("relay_id", ["", "x" * 65, "ünï", "a\nb"])
def test_a_relay_id_that_cannot_be_stored_is_refused(relay_id: str) -> None:
    with pytest.raises(ConfigError, match="relay id"):
        RowLeaseStore(sqlite_engine("sqlite://"), relay_id=relay_id, lease=60.0)


@pytest.mark.parametrize("lease", [0.0, -1.0, 86_401.0, float("nan")])
def test_a_lease_without_sense_is_refused(lease: float) -> None:
    with pytest.raises(ConfigError, match="lease"):
        RowLeaseStore(sqlite_engine("sqlite://"), relay_id="a", lease=lease)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "cannot be used"),
        ("oracle://host/db", "not one that relay and commands work with"),
        ("postgresql+asyncpg://host/db", r"postgresql\+psycopg"),
        ("mysql+aiomysql://host/db", r"mysql\+pymysql"),
        ("sqlite+aiosqlite:///x.db", "sqlite"),
        ("sqlite://", "in-memory"),
        ("sqlite:///:memory:", "in-memory"),
        ("kafka://host", "cannot be used"),
    ],
)
def test_a_url_that_a_relay_cannot_work_with_is_refused(url: str, message: str) -> None:
    with pytest.raises(BadUrl, match=message):
        relay_engine(url)


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("mysql://host/db", "pymysql"),
        ("mariadb://host/db", "pymysql"),
        ("postgresql://host/db", "psycopg"),
        ("postgres://host/db", "psycopg"),
        ("sqlite:///x.db", "pysqlite"),
    ],
)
def test_a_url_without_driver_gets_the_tested_one(url: str, driver: str) -> None:
    assert relay_engine(url).dialect.driver == driver


def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2026, 5, 1, 10, tzinfo=UTC)
    clock.advance(1.5)
    clock.set_wall(datetime(2020, 1, 1, tzinfo=UTC))
    assert (clock.now().year, clock.monotonic()) == (2020, 1.5)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
