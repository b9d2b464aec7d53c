"""What a run says of the software it used."""

import platform
from importlib.metadata import version

from pillarbox.lab.versions import versions


def test_python_pillarbox_and_the_clients_of_the_servers_are_named() -> None:
    found = versions("postgres", "kafka")
    assert found["Python"] == platform.python_version()
    assert found["psycopg"] == version("psycopg")
    assert found["confluent-kafka"] == version("confluent-kafka")
    assert found["librdkafka"][0].isdigit()
    assert "pika" not in found
    assert "PyMySQL" not in found


def test_without_a_server_every_client_that_is_installed_is_named() -> None:
    assert {"pika", "PyMySQL", "psycopg", "confluent-kafka", "SQLite", "pillarbox"} <= versions().keys()
