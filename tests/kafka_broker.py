"""A Kafka broker of the tests' own: alone, behind a fault proxy, with passwords and access control.

It may be frozen, cut off and killed without disturbing the shared cluster.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT, Popen, run
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from pillarbox.lab.proxy import FaultProxy, fault_proxy
from services.kafka import JVM, LIBRARIES
from services.maven import jars
from services.place import Place
from tests.certificates import Authority

_HOSTS = {"SSL": "localhost", "SASL_SSL": "localhost", "MUTUAL": "localhost"}
"""By listener: where the client verifies the broker's name, it has one."""

CLUSTER_ID = "cGlsbGFyYm94LXRlc3RzLQ"
JAAS = "org.apache.kafka.common.security"
PASSWORD = "wonderland"


@dataclass(slots=True)
class KafkaBroker:
    """``url`` goes through ``proxy``; ``sasl_address`` wants user ``alice`` with password ``wonderland``.

    ``tls_address`` speaks TLS with a certificate that ``authority`` signed, ``sasl_tls_address`` asks for alice's
    password, too (PLAIN or SCRAM-SHA-256), and ``mutual_address`` for a certificate of the client's, signed alike.
    """

    proxy: FaultProxy
    folder: Path
    ports: Ports
    authority: Authority
    java: list[str]
    process: Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"kafka://127.0.0.1:{self.proxy.port}"

    @property
    def direct(self) -> str:
        """Past the proxy."""
        return f"127.0.0.1:{self.ports.direct}"

    @property
    def sasl_address(self) -> str:
        return f"127.0.0.1:{self.ports.sasl}"

    @property
    def tls_address(self) -> str:
        return f"localhost:{self.ports.tls}"

    @property
    def sasl_tls_address(self) -> str:
        return f"localhost:{self.ports.sasl_tls}"

    @property
    def mutual_address(self) -> str:
        return f"localhost:{self.ports.mutual}"

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.direct, "log_level": 0})

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic and wait until the broker leads its partitions."""
        admin = self.admin()
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
        self.wait_until_led(name, partitions)
        return name

    def wait_until_led(self, name: str, partitions: int) -> None:
        """Wait until the broker leads so many partitions of the topic."""
        admin, deadline = self.admin(), time.monotonic() + 20
        # Just created, it may be unknown to the broker itself: then the metadata has no partition.
        led = 0
        while led < partitions:
            assert time.monotonic() < deadline
            led = sum(one.leader >= 0 for one in admin.list_topics(name, timeout=5).topics[name].partitions.values())

    def allow_alice(self, topic: str, *, write: bool = True) -> None:
        """Alice may write to this topic, and to no other; or no more than know that it is there."""
        admin = self.admin()
        for operation in (AclOperation.DESCRIBE, AclOperation.WRITE)[: 2 if write else 1]:
            binding = AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                "User:alice",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            admin.create_acls([binding])[binding].result(10)

    def allow_nothing(self) -> None:
        """Take all rights from everybody who is no super user."""
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        admin = self.admin()
        admin.delete_acls([everything])[everything].result(10)

    def log_of(self, topic: str, partition: int = 0) -> Path:
        """The file with the records of a partition, as the broker keeps them."""
        return self.folder / "data" / f"{topic}-{partition}" / "00000000000000000000.log"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            command = [*self.java, "kafka.Kafka", str(self.folder / "server.properties")]
            self.process = Popen(command, stdout=log, stderr=STDOUT)
        _wait_until_ready(self.process, self.ports.direct, self.folder / "log")

    def kill(self) -> None:
        """SIGKILL, frozen or not; returns when it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)


@contextmanager
def kafka_broker() -> Iterator[KafkaBroker]:
    """Start a broker (about 5 s) and stop it afterwards."""
    java = ["java", "-Xmx256m", *JVM, "-cp", f"{jars(Place.of_checkout(), 'kafka-4.4.0', *LIBRARIES)}/*"]
    folder = Path(tempfile.mkdtemp(prefix="pillarbox-kafka-"))
    ports = Ports(*_free_ports(len(Ports._fields)))
    try:
        with fault_proxy("127.0.0.1", ports.plain) as proxy:
            broker = KafkaBroker(proxy, folder, ports, Authority(folder / "tls"), java)
            properties = folder / "server.properties"
            properties.write_text(_properties(broker))
            alice = f"SCRAM-SHA-256=[name=alice,password={PASSWORD}]"
            command = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), "-S", alice]
            with (folder / "log").open("wb") as log:
                run([*java, *command], stdout=log, stderr=STDOUT, check=True, timeout=60)
            try:
                broker.start()
                yield broker
            finally:
                broker.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Ports(NamedTuple):
    """Where the broker listens; clients of ``plain`` are told to come back through the proxy."""

    plain: int
    direct: int
    sasl: int
    tls: int
    sasl_tls: int
    mutual: int
    controller: int


def _properties(broker: KafkaBroker) -> str:
    ports = broker.ports
    listeners = {
        "PLAINTEXT": ports.plain,
        "DIRECT": ports.direct,
        "SASL_PLAINTEXT": ports.sasl,
        "SSL": ports.tls,
        "SASL_SSL": ports.sasl_tls,
        "MUTUAL": ports.mutual,
    }
    told = listeners | {"PLAINTEXT": broker.proxy.port}
    protocols = {name: name for name in listeners} | {"DIRECT": "PLAINTEXT", "MUTUAL": "SSL", "CONTROLLER": "PLAINTEXT"}
    settings = {
        "node.id": 1,
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": _addresses(listeners | {"CONTROLLER": ports.controller}),
        "advertised.listeners": _addresses(told),
        "inter.broker.listener.name": "DIRECT",
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        **_passwords("sasl_plaintext"),
        **_passwords("sasl_ssl"),
        **_tls(broker),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:CN=shop",
        "log.dirs": broker.folder / "data",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "log.cleaner.dedupe.buffer.size": 4194304,
        "num.network.threads": 2,
        "num.io.threads": 2,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _passwords(listener: str) -> dict[str, str]:
    return {
        f"listener.name.{listener}.plain.sasl.jaas.config": (
            f'{JAAS}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
        ),
        f"listener.name.{listener}.scram-sha-256.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
    }


def _tls(broker: KafkaBroker) -> dict[str, object]:
    broker.authority.issue("server", "localhost")
    folder = broker.folder / "tls"
    both = folder / "both.pem"
    both.write_bytes((folder / "server.key").read_bytes() + (folder / "server.pem").read_bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": both,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": broker.authority.ca,
        "listener.name.mutual.ssl.client.auth": "required",
    }


def _addresses(listeners: dict[str, int]) -> str:
    return ",".join(f"{name}://{_HOSTS.get(name, '127.0.0.1')}:{port}" for name, port in listeners.items())


def _wait_until_ready(process: Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    while time.monotonic() < deadline:
        try:
            client.list_topics(timeout=2)
        except KafkaException:
            continue
        return
    raise TimeoutError(f"the broker is not ready: {log.read_text(errors='replace')[-2_000:]}")


def _free_ports(count: int) -> list[int]:
    # Below 32768: above it an outgoing connection may hold the port by the time the broker starts.
    found: list[int] = []
    # Each process looks in a place of its own: they start at the same moment when tests run side by side.
    for port in range(22_000 + os.getpid() % 600 * 16, 32_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")
