"""A RabbitMQ cluster of three nodes of a test's own, on one machine: its nodes may be killed one by one."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.place import PORTS_IN_A_BLOCK, Place, port_is_free
from services.process import Process
from services.rabbitmq import AMQP, EPMD, MANAGEMENT, SERVER, RabbitMQ

CLUSTERED = """\
cluster_partition_handling = pause_minority
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.classic_config.nodes.1 = pillarbox1@localhost
cluster_formation.classic_config.nodes.2 = pillarbox2@localhost
cluster_formation.classic_config.nodes.3 = pillarbox3@localhost
"""
NUMBERS = (1, 2, 3)


@dataclass(frozen=True)
class Node(RabbitMQ):
    """One of them. Cookie and port mapper are the first one's."""

    number: int = 1
    epmd_port: int = 0

    @property
    def process(self) -> Process:
        return self.parts()[self.name]

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.place.port(AMQP)}"

    def ask(self, path: str) -> Any:
        """What its management API says."""
        login = b64encode(b"guest:guest").decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.place.port(MANAGEMENT)}/api/{path}", headers={"Authorization": f"Basic {login}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def _environment(self, owner: str | None) -> dict[str, str]:
        found: Mapping[str, str] = super()._environment(owner)
        with Path(found["RABBITMQ_CONFIG_FILE"]).open("a") as file:
            file.write(CLUSTERED)
        return {
            **found,
            "HOME": str(self.place.path("data", "home", owner=owner)),
            "RABBITMQ_NODENAME": f"pillarbox{self.number}@localhost",
            "ERL_EPMD_PORT": str(self.epmd_port),
        }


@dataclass(frozen=True)
class Cluster:
    """``url`` names all nodes."""

    nodes: tuple[Node, Node, Node]

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{','.join(node.host for node in self.nodes)}/"

    def leader_of(self, queue: str, *, asked: Node | None = None) -> Node:
        """The node that leads a quorum queue, as another one, or any, knows it."""
        known = (asked or self.nodes[0]).ask(f"queues/%2F/{urllib.parse.quote(queue)}")
        return next(node for node in self.nodes if known["leader"] == f"pillarbox{node.number}@localhost")

    def online(self, queue: str) -> int:
        """How many of the queue's members are up, by the first node that answers."""
        for node in self.nodes:
            if node.process.pid() is not None:
                return len(node.ask(f"queues/%2F/{urllib.parse.quote(queue)}")["online"])
        return 0

    def others(self, node: Node) -> list[Node]:
        return [one for one in self.nodes if one is not node]


@contextmanager
def rabbitmq_cluster() -> Iterator[Cluster]:
    """Started; fifteen to thirty seconds. FileNotFoundError without the program."""
    if not SERVER.exists():
        raise FileNotFoundError(SERVER)
    with tempfile.TemporaryDirectory(prefix="pillarbox-cluster-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        first = _free_ports()
        places = [Place(folder, folder, folder, first + (number - 1) * PORTS_IN_A_BLOCK) for number in NUMBERS]
        nodes = [
            Node(place, f"rabbitmq{number}", number=number, epmd_port=first + EPMD)
            for number, place in zip(NUMBERS, places, strict=True)
        ]
        try:
            nodes[0].start()
            together([nodes[1], nodes[2]])
            nodes[0].process.wait(lambda: sum(one["running"] for one in nodes[0].ask("nodes")) == 3, seconds=60)
            yield Cluster((nodes[0], nodes[1], nodes[2]))
        finally:
            for node in reversed(nodes):
                node.process.kill()
            nodes[0].end()


def together(nodes: list[Node]) -> None:
    """Start them at the same time: after a minority, one alone waits for tables of the other."""
    failures: list[Exception] = []

    def start(node: Node) -> None:
        try:
            node.start()
        except Exception as error:  # noqa: BLE001 - raised below, in the caller's thread
            failures.append(error)

    threads = [threading.Thread(target=start, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _free_ports() -> int:
    # Below 32768: above it an outgoing connection may hold a port by the time the node starts.
    step = PORTS_IN_A_BLOCK * len(NUMBERS)
    start = 26_000 + os.getpid() % 20 * step
    for first in (*range(start, 30_000, step), *range(26_000, start, step)):
        ports = [first + block * PORTS_IN_A_BLOCK + offset for block in range(3) for offset in range(AMQP, EPMD + 1)]
        if all(port_is_free(port) for port in ports):
            return first
    raise RuntimeError("no free ports")
