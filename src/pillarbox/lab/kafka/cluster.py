"""A Kafka cluster of the lab's own, whose brokers it may freeze and kill: one controller, three brokers, in one folder.

The controller is apart, so that a dead broker is just that. Everything is on 127.0.0.1 and gone at the end.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen, run
from typing import Final

from confluent_kafka import KafkaException

from ...errors import LabError
from .topics import admin, wait_for

BROKERS: Final = (1, 2, 3)
_CONTROLLER: Final = 0
_START: Final = 120.0  # seconds; some 8 s when the machine has nothing else to do
_JVM: Final = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")
_SHARED: Final[Mapping[str, object]] = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LAB:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 4_194_304,  # 128 MiB by default, more than this heap can spare
    "num.network.threads": 2,
    "num.io.threads": 2,
    # The controller takes a broker that is silent for 6 s (9 s by default) for dead. A leader by itself would drop a
    # slow follower after 30 s, Kafka's default: until then a frozen follower counts as in sync.
    "broker.session.timeout.ms": 6_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 30_000,
    "replica.fetch.wait.max.ms": 200,
}


class Cluster:
    """The brokers by number. ``bootstrap`` names all; ``address`` one of them; ``via`` is for proxies before them."""

    def __init__(self, java: list[str], folder: Path) -> None:
        self._java = java
        self._folder = folder
        ports = iter(_free_ports(1 + 3 * len(BROKERS)))
        self._ports = {node: next(ports) for node in (_CONTROLLER, *BROKERS)}
        self._detours = {node: (next(ports), next(ports)) for node in BROKERS}
        self._running: dict[int, Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, BROKERS))

    @property
    def via(self) -> str:
        """``advertised=real`` of each broker's second listener."""
        return ",".join(f"127.0.0.1:{told}=127.0.0.1:{real}" for told, real in self._detours.values())

    def address(self, node: int) -> str:
        return f"127.0.0.1:{self._ports[node]}"

    def format(self) -> None:
        """Give every node its empty folder: one run of Kafka's tool, then copies with ids of their own."""
        tool = ["kafka.tools.StorageTool", "format", "--cluster-id", _random_id(), "--config"]
        with self._log(_CONTROLLER).open("ab") as log:
            command = [*self._java, *tool, str(self._properties(_CONTROLLER))]
            done = run(command, stdin=DEVNULL, stdout=log, stderr=STDOUT, timeout=_START, check=False)
        if done.returncode != 0:
            raise LabError(f"Kafka's storage tool failed: {self._end_of_log(_CONTROLLER)}")
        for node in BROKERS:
            shutil.copytree(self._folder / str(_CONTROLLER), self._folder / str(node))
            meta = self._folder / str(node) / "meta.properties"
            lines = [line.partition("=") for line in meta.read_text().splitlines()]
            own = {"node.id": str(node), "directory.id": _random_id()}
            meta.write_text("".join(f"{name}{equals}{own.get(name, value)}\n" for name, equals, value in lines))

    def start(self, *nodes: int) -> None:
        """Start brokers, and wait until the cluster counts them in (a killed one: once its old session is over)."""
        for node in nodes:
            self._spawn(node)
        what = f"brokers {', '.join(map(str, nodes))} are up"
        wait_for(lambda: all(set(nodes) <= self._known_to(node) for node in nodes), what, _START)

    def start_all(self) -> None:
        """Controller and brokers."""
        self._spawn(_CONTROLLER)
        self.start(*BROKERS)

    def kill(self, node: int) -> None:
        """SIGKILL; returns when it is gone."""
        self._running[node].kill()
        self._running.pop(node).wait(10)

    def freeze(self, *nodes: int) -> None:
        """SIGSTOP: their connections stay open."""
        for node in nodes:
            self._running[node].send_signal(signal.SIGSTOP)

    def thaw(self, *nodes: int) -> None:
        """SIGCONT."""
        for node in nodes:
            self._running[node].send_signal(signal.SIGCONT)

    def end(self) -> None:
        """SIGKILL for all: what they have on disk goes, too."""
        for node in list(self._running):
            self.kill(node)

    def _spawn(self, node: int) -> None:
        with self._log(node).open("ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._properties(node))]
            self._running[node] = Popen(command, stdin=DEVNULL, stdout=log, stderr=STDOUT)

    def _known_to(self, node: int) -> set[int]:
        if self._running[node].poll() is not None:
            raise LabError(f"A broker of the lab has ended: {self._end_of_log(node)}")
        try:
            return set(admin(self.address(node)).list_topics(timeout=2).brokers)
        except KafkaException:
            return set()

    def _log(self, node: int) -> Path:
        return self._folder / f"{node}.log"

    def _end_of_log(self, node: int) -> str:
        return self._log(node).read_text(errors="replace")[-1_000:]

    def _properties(self, node: int) -> Path:
        settings = {
            "node.id": node,
            **self._listeners(node),
            "controller.quorum.voters": f"{_CONTROLLER}@{self.address(_CONTROLLER)}",
            "log.dirs": self._folder / str(node),
            **_SHARED,
        }
        path = self._folder / f"{node}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _listeners(self, node: int) -> dict[str, str]:
        if node == _CONTROLLER:
            return {"process.roles": "controller", "listeners": f"CONTROLLER://{self.address(node)}"}
        told, real = self._detours[node]
        plain = f"PLAINTEXT://{self.address(node)}"
        return {
            "process.roles": "broker",
            "listeners": f"{plain},LAB://127.0.0.1:{real}",
            "advertised.listeners": f"{plain},LAB://127.0.0.1:{told}",
            "inter.broker.listener.name": "PLAINTEXT",
        }


@contextmanager
def private_cluster(home: Path) -> Iterator[Cluster]:
    """Start three brokers from a Kafka distribution (some 8 s), and remove them at the end.

    ``home`` is an unpacked distribution, or a folder with its jars; Java is that of ``JAVA_HOME`` or the path. Raises
    LabError (PB-100) when one of them is missing, or a broker does not come up.
    """
    java = _java(home)
    folder = Path(tempfile.mkdtemp(prefix="pillarbox_lab_kafka_"))
    try:
        cluster = Cluster(java, folder)
        try:
            cluster.format()
            cluster.start_all()
            yield cluster
        finally:
            cluster.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _java(home: Path) -> list[str]:
    jars = next((folder for folder in (home / "libs", home) if any(folder.glob("kafka_*.jar"))), None)
    if jars is None:
        raise LabError(
            f"{home} has no Kafka: neither libs/kafka_*.jar nor kafka_*.jar.",
            fix="Give --kafka-home the folder of an unpacked Kafka distribution (4.0 or later).",
        )
    chosen = Path(os.environ.get("JAVA_HOME", "/nowhere")) / "bin" / "java"
    java = str(chosen) if chosen.is_file() else shutil.which("java")
    if java is None:
        raise LabError("There is no Java to run Kafka with.", fix="Install a JDK or JRE, 17 or later.")
    # Brokers must not outlive a lab that is killed; where the system has no such tool, only a killed lab leaves some.
    guard = shutil.which("setpriv")
    return [*([guard, "--pdeathsig", "KILL"] if guard else []), java, *_JVM, "-cp", f"{jars.resolve()}/*"]


def _random_id() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "A")


def _free_ports(count: int) -> list[int]:
    # Below 32768: above it an outgoing connection may hold the port by the time the broker starts.
    found: list[int] = []
    for port in range(23_000 + os.getpid() % 500 * 16, 32_000):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise LabError("There are no free ports below 32000 on 127.0.0.1.")
