"""Apache Kafka 4 (KRaft): one controller and three brokers, each a JVM of its own.

The controller is apart, so that two dead brokers are just that: in a cluster of three nodes that are both, the second
kill also takes the controllers' majority, and the in-sync set never shrinks.
"""

import base64
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from services import apt, maven
from services.apt import Package
from services.place import Place, user_for
from services.process import Process, run

LIBRARIES = ["org.apache.kafka:kafka_2.13:4.4.0", "org.slf4j:slf4j-simple:1.7.36"]
CONTROLLER, BROKERS = 0, (1, 2, 3)
FIRST_PORT = 40  # of the controller; broker N is N above it
# A client comes back to the address that a broker advertises, so a proxy in front of it must be what it advertises.
# The listener LAB says "broker N is at LAB_ADVERTISED + N", where nobody listens until the fault lab's proxies do.
LAB_ADVERTISED, LAB_REAL = 50, 53
# The quick compiler alone: it starts in two thirds of the time, and nobody measures these brokers.
JVM = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xss512k",
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:MaxMetaspaceSize=160m",
]
HEAP_MB = {CONTROLLER: 128, 1: 320, 2: 320, 3: 320}
SHARED = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LAB:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "num.partitions": 6,
    # One event may have 4 MiB; a follower has to be able to fetch it with its batch header.
    "message.max.bytes": 4194304,
    "replica.fetch.max.bytes": 5242880,
    # The internal topics: as safe as the others, but not with 50 partitions each on a small machine.
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "num.recovery.threads.per.data.dir": 1,
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 4194304,  # 128 MiB by default, a third of this heap
    "log.segment.bytes": 268435456,
    # A dead broker is noticed after 6 s instead of 9 s, a slow follower after 10 s instead of 30 s.
    "broker.session.timeout.ms": 6000,
    "replica.lag.time.max.ms": 10000,
}


@dataclass(frozen=True, slots=True)
class Kafka:
    place: Place
    name: str = "kafka"
    needs: Sequence[Package] = (apt.JAVA, apt.MAVEN)

    def settings(self) -> Mapping[str, str]:
        via = (f"{self._at(LAB_ADVERTISED + node)}={self._at(LAB_REAL + node)}" for node in BROKERS)
        return {
            "PILLARBOX_TEST_KAFKA": "kafka://" + ",".join(map(self._address, BROKERS)),
            "PILLARBOX_TEST_KAFKA_VIA": ",".join(via),
        }

    def parts(self) -> Mapping[str, Process]:
        return {_part(node): Process.at(self.place, _part(node)) for node in (CONTROLLER, *BROKERS)}

    def fetch(self) -> None:
        self._jars()

    def running(self) -> bool:
        return all(process.pid() is not None for process in self.parts().values())

    def start(self) -> None:
        self._format()
        for node in (CONTROLLER, *BROKERS):
            self._spawn(node)
        for node in BROKERS:
            self._wait(node, {*BROKERS})

    def start_part(self, part: str) -> None:
        node = next(node for node in (CONTROLLER, *BROKERS) if _part(node) == part)
        self._spawn(node)
        if node != CONTROLLER:
            self._wait(node, {node})

    def end(self) -> None:
        parts = list(self.parts().values())
        # The controller last: an orderly stop of a broker waits for it.
        for process in (*parts[1:], parts[0]):
            process.end()

    def _jars(self) -> Path:
        return maven.jars(self.place, "kafka-4.4.0", *LIBRARIES)

    def _address(self, node: int) -> str:
        return self._at(FIRST_PORT + node)

    def _at(self, offset: int) -> str:
        return f"127.0.0.1:{self.place.port(offset)}"

    def _data(self, node: int) -> Path:
        return self.place.path("data", _part(node), owner=user_for("nobody"))

    def _spawn(self, node: int) -> None:
        process = self.parts()[_part(node)]
        if process.pid() is None:
            process.spawn(self._java(node, "kafka.Kafka", str(self._properties(node))), user=user_for("nobody"))

    def _java(self, node: int, main: str, *arguments: str) -> list[str]:
        log = [
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]
        heap = [f"-Xmx{HEAP_MB[node]}m", "-Xms64m"]
        return ["java", *heap, *JVM, *log, "-cp", f"{self._jars()}/*", main, *arguments]

    def _properties(self, node: int) -> Path:
        properties = {
            "node.id": node,
            "process.roles": "controller" if node == CONTROLLER else "broker",
            **self._listeners(node),
            "controller.quorum.voters": f"{CONTROLLER}@{self._address(CONTROLLER)}",
            "log.dirs": self._data(node),
            **SHARED,
        }
        path = self.place.path("data") / f"{_part(node)}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return path

    def _listeners(self, node: int) -> dict[str, str]:
        if node == CONTROLLER:
            return {"listeners": f"CONTROLLER://{self._address(node)}"}
        plain = f"PLAINTEXT://{self._address(node)}"
        return {
            "listeners": f"{plain},LAB://{self._at(LAB_REAL + node)}",
            "advertised.listeners": f"{plain},LAB://{self._at(LAB_ADVERTISED + node)}",
            "inter.broker.listener.name": "PLAINTEXT",
        }

    def _format(self) -> None:
        """Gives each node its empty log folder. One run of Kafka's tool, then copies: three JVM starts less."""
        made = self.place.path("data") / f"{self.name}.made"
        if made.exists():
            return
        for node in (CONTROLLER, *BROKERS):
            shutil.rmtree(self._data(node))
        first, owner = self._data(CONTROLLER), user_for("nobody")
        cluster = ["--cluster-id", _random_id(), "--config", str(self._properties(CONTROLLER))]
        log = self.parts()[_part(CONTROLLER)].log
        run(
            self._java(CONTROLLER, "kafka.tools.StorageTool", "format", *cluster),
            log,
            seconds=120,
            user=owner,
        )
        for node in BROKERS:
            run(["cp", "-rT", first, self._data(node)], log, seconds=60, user=owner)
            meta = self._data(node) / "meta.properties"
            meta.write_text(_renamed(meta.read_text(), node))
        made.touch()

    def _wait(self, node: int, members: set[int]) -> None:
        self.parts()[_part(node)].wait(lambda: members <= self._registered(node), seconds=60)

    def _registered(self, node: int) -> set[int]:
        """The brokers that one broker knows as alive. A new client each time: an old one may ask another broker."""
        client = AdminClient({"bootstrap.servers": self._address(node), "log_level": 0})
        try:
            return set(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return set()


def _part(node: int) -> str:
    return "kafka-controller" if node == CONTROLLER else f"kafka{node}"


def _random_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _renamed(meta: str, node: int) -> str:
    """meta.properties of one node made into that of another: own node id, own directory id."""
    own = {"node.id": str(node), "directory.id": _random_id()}
    lines = [line.partition("=") for line in meta.splitlines()]
    return "".join(f"{name}{equals}{own.get(name, value)}\n" for name, equals, value in lines)
