"""Writers in other languages compute the lane in SQL, as docs/tables.md shows: every server must agree with Python."""

from sqlalchemy import create_engine, text

from pillarbox.policy.lanes import lane_of
from tests.unit.test_lanes import VECTORS

MYSQL = "SELECT CONV(LEFT(SHA2(:key, 256), 15), 16, 10)"
POSTGRESQL = (
    "SELECT ('x' || lpad(left(encode(sha256(convert_to(:key, 'UTF8')), 'hex'), 15), 16, '0'))\\:\\:bit(64)\\:\\:bigint"
)
KEYS = [key for key, _, _ in VECTORS] + [f"order-{n}" for n in range(50)]


def lanes(url: str, sql: str) -> list[int]:
    """What the server computes."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return [int(connection.scalar(text(sql), {"key": key})) for key in KEYS]
    finally:
        engine.dispose()


def test_mysql_and_mariadb_compute_the_same_lanes(
    mysql_url: str, mysql57_url: str, mariadb_url: str, mariadb102_url: str
) -> None:
    for url in (mysql_url, mysql57_url, mariadb_url, mariadb102_url):
        assert lanes(url, MYSQL) == [lane_of(key) for key in KEYS]


def test_postgresql_computes_the_same_lanes(postgres_url: str) -> None:
    assert lanes(postgres_url, POSTGRESQL) == [lane_of(key) for key in KEYS]
