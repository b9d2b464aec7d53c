"""The fixtures give real, distinct servers, and those that the tests believe they have."""

import pika
import pymysql
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, ProgrammingError

import services
from tests.servers import DATABASES, fresh_database, look_for, read_settings, wait_for_removals
from tests.services_fixtures import MakeTopic

SKIP_LOCKED = "SELECT id FROM event ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
HAS_SKIP_LOCKED = {"postgres": True, "mysql": True, "mysql57": False, "mariadb": True, "mariadb102": False}


def version_of(url: str) -> str:
    engine = create_engine(url)
    with engine.connect() as connection:
        version = connection.execute(text("SELECT version()")).scalar_one()
    engine.dispose()
    return str(version)


def test_postgres_is_version_15(postgres_url: str) -> None:
    assert version_of(postgres_url).startswith("PostgreSQL 15.")


def test_mysql_is_version_9_or_later(mysql_url: str) -> None:
    version = version_of(mysql_url)
    assert "MariaDB" not in version
    assert int(version.split(".")[0]) >= 9


@pytest.mark.parametrize(("name", "version"), [("mysql57", "5.7."), ("mariadb", "10.11."), ("mariadb102", "10.2.")])
def test_old_and_other_servers_are_what_they_are_called(
    request: pytest.FixtureRequest, name: str, version: str
) -> None:
    found = version_of(request.getfixturevalue(f"{name}_url"))
    assert found.startswith(version)
    assert ("MariaDB" in found) == name.startswith("mariadb")


@pytest.mark.parametrize("database_name", DATABASES, indirect=True)
def test_only_the_newer_servers_skip_locked_rows(database_name: str, database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE event (id INTEGER PRIMARY KEY)"))
    with engine.connect() as connection:
        if HAS_SKIP_LOCKED[database_name]:
            assert connection.execute(text(SKIP_LOCKED)).all() == []
        else:
            with pytest.raises(ProgrammingError, match="1064"):
                connection.execute(text(SKIP_LOCKED))
    engine.dispose()


@pytest.mark.parametrize("database_name", [name for name in DATABASES if name != "postgres"], indirect=True)
def test_mysql_servers_keep_their_default_isolation_and_durability(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        variables = {row.Variable_name: row.Value for row in connection.execute(text("SHOW VARIABLES"))}
    engine.dispose()
    isolation = variables.get("transaction_isolation", variables.get("tx_isolation"))
    assert isolation == "REPEATABLE-READ"
    assert variables["innodb_flush_log_at_trx_commit"] == "1"
    assert variables["binlog_format"] == "ROW"


@pytest.mark.parametrize("database_name", DATABASES, indirect=True)
def test_a_database_belongs_to_one_test_and_goes_with_it(database_name: str) -> None:
    found = look_for(database_name, read_settings())
    if found.problem:
        pytest.skip(found.problem)
    with fresh_database(found.url) as one, fresh_database(found.url) as other:
        assert make_url(one).database != make_url(other).database
        own = create_engine(one)
        forgotten = own.connect()  # in a transaction, as a careless test leaves it
        forgotten.execute(text("SELECT 1"))
    forgotten.invalidate()
    wait_for_removals()
    with pytest.raises(DBAPIError, match=r"(?i)unknown database|does not exist"):
        own.connect()


def test_a_virtual_host_belongs_to_one_test(rabbitmq_url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    connection.channel().queue_declare("orders", durable=True, arguments={"x-queue-type": "quorum"})
    connection.close()
    assert make_url(rabbitmq_url).database not in ("", "/", None)


def test_a_topic_has_three_replicas_and_room_for_4_mib(kafka_admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(4, retention_ms="60000")
    partitions = kafka_admin.list_topics(topic, timeout=10).topics[topic].partitions
    assert {len(partition.replicas) for partition in partitions.values()} == {3}
    assert len(partitions) == 4
    resource = ConfigResource(ResourceType.TOPIC, topic)
    config = kafka_admin.describe_configs([resource])[resource].result(10)
    assert config["min.insync.replicas"].value == "2"
    assert config["max.message.bytes"].value == "4194304"
    assert config["retention.ms"].value == "60000"


@pytest.mark.parametrize("database_name", [name for name in DATABASES if name != "postgres"], indirect=True)
def test_the_c_driver_logs_in_to_each_mysql(database_url: str, mysqldb: object) -> None:
    engine = create_engine(make_url(database_url).set(drivername="mysql+mysqldb"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    engine.dispose()


@pytest.mark.fault
def test_a_killed_server_comes_back_with_what_was_committed(mysql57_url: str) -> None:
    if "mysql57" not in services.running():
        pytest.skip("not our server: it is not ours to kill")
    engine = create_engine(mysql57_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE event (id INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO event VALUES (7)"))
    engine.dispose()

    services.kill("mysql57")
    with pytest.raises(pymysql.err.OperationalError):
        engine.raw_connection()
    services.start("mysql57")

    with engine.connect() as connection:
        assert connection.execute(text("SELECT id FROM event")).scalar_one() == 7
    engine.dispose()


@pytest.mark.fault
def test_a_killed_broker_is_gone_and_registers_again(kafka_admin: AdminClient) -> None:
    if "kafka" not in services.running():
        pytest.skip("not our cluster: it is not ours to kill")
    with services.killed("kafka2"):
        assert "kafka" not in services.running()
    assert set(kafka_admin.list_topics(timeout=10).brokers) == {1, 2, 3}
