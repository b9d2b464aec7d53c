"""A Kafka broker of the tests' own: alone, behind a fault proxy, with passwords and access control.

It may be frozen, cut off and killed without disturbing the shared cluster.
"""

from __future__ import annotations

import os
import shutil
import signal
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
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from services.kafka import JVM, LIBRARIES
from services.maven import jars
from services.place import Place
from tests.fault_proxy import FaultProxy, fault_proxy

CLUSTER_ID = "cGlsbGFyYm94LXRlc3RzLQ"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(slots=True)
class KafkaBroker:
    """``url`` goes through ``proxy``; ``sasl_address`` wants user ``alice`` with password ``wonderland``."""

    proxy: FaultProxy
    direct: str  # past the proxy
    sasl_address: str
    process: Popen[bytes]

    @property
    def url(self) -> str:
        return f"kafka://127.0.0.1:{self.proxy.port}"

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.direct, "log_level": 0})

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic and wait until the broker leads its partitions."""
        admin = self.admin()
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
        deadline = time.monotonic() + 10
        # Just created, it may be unknown to the broker itself: then the metadata has no partition.
        led = 0
        while led < partitions:
            assert time.monotonic() < deadline
            led = sum(one.leader >= 0 for one in admin.list_topics(name, timeout=5).topics[name].partitions.values())
        return name

    def allow_alice(self, topic: str) -> None:
        """Alice may write to this topic, and to no other."""
        admin = self.admin()
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
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

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@contextmanager
def kafka_broker() -> Iterator[KafkaBroker]:
    """Start a broker (about 5 s) and stop it afterwards."""
    classpath = f"{jars(Place.of_checkout(), 'kafka-4.4.0', *LIBRARIES)}/*"
    folder = Path(tempfile.mkdtemp(prefix="pillarbox-kafka-"))
    ports = Ports(*_free_ports(4))
    try:
        with fault_proxy("127.0.0.1", ports.plain) as proxy:
            properties = folder / "server.properties"
            properties.write_text(_properties(folder, ports, proxy.port))
            java = ["java", "-Xmx256m", *JVM, "-cp", classpath]
            with (folder / "log").open("wb") as log:
                command = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
                run([*java, *command], stdout=log, stderr=STDOUT, check=True, timeout=60)
                process = Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=STDOUT)
            try:
                _wait_until_ready(process, ports.direct, folder / "log")
                yield KafkaBroker(proxy, f"127.0.0.1:{ports.direct}", f"127.0.0.1:{ports.sasl}", process)
            finally:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
                process.kill()
                process.wait(10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Ports(NamedTuple):
    """Where the broker listens; clients of ``plain`` are told to come back through the proxy."""

    plain: int
    direct: int
    sasl: int
    controller: int


def _properties(folder: Path, ports: Ports, advertised: int) -> str:
    listeners = {"PLAINTEXT": ports.plain, "DIRECT": ports.direct, "SASL_PLAINTEXT": ports.sasl}
    told = listeners | {"PLAINTEXT": advertised}
    protocols = {
        "CONTROLLER": "PLAINTEXT",
        "PLAINTEXT": "PLAINTEXT",
        "DIRECT": "PLAINTEXT",
        "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    }
    settings = {
        "node.id": 1,
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": _addresses(listeners | {"CONTROLLER": ports.controller}),
        "advertised.listeners": _addresses(told),
        "inter.broker.listener.name": "DIRECT",
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{JAAS} required user_alice="wonderland";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.dirs": folder / "data",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "log.cleaner.dedupe.buffer.size": 4194304,
        "num.network.threads": 2,
        "num.io.threads": 2,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _addresses(listeners: dict[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())


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
    for port in range(22_000 + os.getpid() % 4_000, 32_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")
