"""What the package offers, and what importing it costs."""

import subprocess
import sys

import pillarbox


def test_every_public_name_is_there() -> None:
    for name in pillarbox.__all__:
        assert getattr(pillarbox, name) is not None
    assert set(pillarbox.__all__) == set(pillarbox._WHERE)


def test_importing_the_package_loads_no_database_and_no_broker_client() -> None:
    everything = "import pillarbox, sys; [getattr(pillarbox, name) for name in pillarbox.__all__]; "
    clients = {
        "confluent_kafka",
        "pika",
        "pymysql",
        "MySQLdb",
        "psycopg",
        "psycopg2",
        "asyncpg",
        "aiomysql",
        "aiosqlite",
    }
    code = f"{everything} print(sorted({clients!r} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(pillarbox, "Outhouse")
