"""Which real servers there are, their versions, and a fresh database, virtual host or topic on them.

The addresses come from the environment or from `.services/env`, which `python -m services up`
writes; the environment wins.
"""

import base64
import json
import os
import socket
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pika
import psycopg
import pymysql
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from pika.exceptions import AMQPError
from sqlalchemy import URL, make_url

ENV_FILE = Path(__file__).resolve().parent.parent / ".services" / "env"
PREFIX = "PILLARBOX_TEST_"
DATABASES = ("postgres", "mysql", "mysql57", "mariadb", "mariadb102")
BROKERS = ("kafka", "rabbitmq")
SERVERS = (*DATABASES, *BROKERS, "nats")


def read_settings() -> dict[str, str]:
    """The settings by name; without a file and without variables there are none."""
    lines = ENV_FILE.read_text().splitlines() if ENV_FILE.exists() else []
    settings = dict(line.split("=", 1) for line in lines if "=" in line)
    return settings | {name: value for name, value in os.environ.items() if name.startswith(PREFIX) and value}


@dataclass(frozen=True, slots=True)
class Found:
    """A server that has answered, or the reason why it has not."""

    name: str
    url: str = ""
    version: str = ""
    problem: str = ""


def look_for(name: str, settings: Mapping[str, str]) -> Found:
    """Asks a server for its version, for at most 5 s."""
    variable = f"{PREFIX}{name.upper()}"
    if variable not in settings:
        return Found(name, problem=f"{variable} is not set; python -m services up {name}")
    url = settings[variable]
    try:
        return Found(name, url, _version(name, url))
    except (pymysql.Error, psycopg.Error, KafkaException, AMQPError, OSError) as error:
        return Found(name, url, problem=f"{name} does not answer at {variable}: {error}")


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """The URL of a new, empty database, dropped afterwards with all connections that are still in it.

    That is not waited for: PostgreSQL writes a whole checkpoint first. `wait_for_removals` does, and so does the end of
    the process.
    """
    url = make_url(server_url)
    name = unique("t")
    with _connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        _removals.append(_remover().submit(_remove, url, name))


def wait_for_removals(seconds: float = 120) -> None:
    """Until every database of this process that is done with is gone; raises what went wrong."""
    while _removals:
        _removals.pop().result(seconds)


_removals: list[Future[None]] = []


@cache
def _remover() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="removing-databases")


def _remove(url: URL, name: str) -> None:
    with _connect(url) as connection, connection.cursor() as cursor:
        if url.get_backend_name() == "postgresql":
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")
            return
        # A transaction that a test left open holds metadata locks, and DROP DATABASE would wait for them.
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
        for (connection_id,) in cursor.fetchall():
            with _unless_gone_already():
                cursor.execute(f"KILL {connection_id}")
        cursor.execute(f"DROP DATABASE {name}")


@contextmanager
def fresh_virtual_host(url: str, management: str | None) -> Iterator[str]:
    """The URL of a new virtual host, so with no queue of another test; without a management URL, the shared one."""
    if management is None:
        yield url
        return
    name = unique("t")
    _manage(management, "PUT", f"/api/vhosts/{name}")
    try:
        yield make_url(url).set(database=name).render_as_string(hide_password=False)
    finally:
        _manage(management, "DELETE", f"/api/vhosts/{name}")


def bootstrap_of(url: str) -> str:
    """`kafka://a:1,b:2` as the client's `bootstrap.servers`."""
    return url.removeprefix("kafka://").rstrip("/")


def create_topic(admin: AdminClient, partitions: int, replication: int, config: Mapping[str, str]) -> str:
    """A new topic whose partitions all have a leader and all their replicas in sync; waits at most 30 s for that."""
    name = unique("t")
    topic = NewTopic(name, partitions, replication, config=dict(config))
    admin.create_topics([topic], operation_timeout=20)[name].result(30)
    deadline = time.monotonic() + 30
    while True:
        found = admin.list_topics(name, timeout=10).topics[name].partitions.values()
        if len(found) == partitions and all(len(one.isrs) == replication and one.leader > 0 for one in found):
            return name
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {name} has no full set of replicas after 30 s")
        time.sleep(0.02)


def unique(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:16]}"


def _version(name: str, url: str) -> str:
    if name == "kafka":
        brokers = AdminClient({"bootstrap.servers": bootstrap_of(url), "log_level": 0}).list_topics(timeout=5).brokers
        return f"{len(brokers)} brokers"
    if name == "rabbitmq":
        return _rabbitmq_version(url)
    if name == "nats":
        return _nats_version(url)
    with _connect(make_url(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW server_version" if name == "postgres" else "SELECT version()")
        row = cursor.fetchone()
        assert row is not None
        return str(row[0])


def _nats_version(url: str) -> str:
    """The server speaks first."""
    host, _, port = url.rpartition("@")[2].removeprefix("nats://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection, connection.makefile("rb") as lines:
        return str(json.loads(lines.readline().removeprefix(b"INFO "))["version"])


def _rabbitmq_version(url: str) -> str:
    parameters = pika.URLParameters(url)
    parameters.socket_timeout = parameters.stack_timeout = 5
    connection = pika.BlockingConnection(parameters)
    # pika gives the server's properties to the connection's implementation alone.
    version = connection._impl.server_properties["version"]
    connection.close()
    return str(version)


def _connect(url: URL) -> "psycopg.Connection | pymysql.Connection":
    if url.get_backend_name() == "postgresql":
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.connect(plain, autocommit=True, connect_timeout=5)
    return pymysql.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        autocommit=True,
        connect_timeout=5,
        read_timeout=30,
    )


@contextmanager
def _unless_gone_already() -> Iterator[None]:
    try:
        yield
    except pymysql.Error as error:
        if error.args[0] != 1094:  # ER_NO_SUCH_THREAD
            raise


def _manage(management: str, method: str, path: str) -> None:
    url = make_url(management)
    login = base64.b64encode(f"{url.username}:{url.password}".encode()).decode()
    request = urllib.request.Request(
        f"{url.drivername}://{url.host}:{url.port}{path}",
        method=method,
        headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=15).close()
