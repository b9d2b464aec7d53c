"""Streams on a NATS server for tests, and a server of a test's own that may be killed, frozen and started again."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pillarbox.consume.nats.names import DEAD_STREAM, RETRY_STREAM
from pillarbox.publish.nats.connection import Connection, connect
from pillarbox.publish.nats.headers import read
from pillarbox.publish.nats.loop import LoopThread
from pillarbox.publish.nats.url import parse_nats_url
from pillarbox.testing.conformance.publisher_world import Arrived
from services.nats import PORT, Nats, answers, program
from services.place import PORTS_IN_A_BLOCK, Place, port_is_free
from tests.servers import unique


class Streams:
    """Makes streams and looks into them. What it made is deleted when it is closed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._parsed = parse_nats_url(url)
        self._loop = LoopThread("tests-nats")
        self._connection: Connection | None = None
        self._made: list[str] = []

    def api(self, subject: str, question: object = None) -> dict[str, Any]:
        """JetStream's answer, which may hold an ``error``."""
        if self._connection is None or self._connection.ended.is_set():
            self._connection = self._loop.ask(connect(self._parsed, "tests", first=0, seconds=10), 20)
        return self._loop.ask(self._connection.ask(subject, question, 10), 20)

    def make(self, *subjects: str, name: str | None = None, **config: Any) -> str:
        """A new stream; returns its name. It has the one subject of that name, or these, ``{}`` standing for it."""
        name = name or unique("t")
        taken = [subject.format(name) for subject in subjects or ("{}",)]
        wanted = {"name": name, "subjects": taken, "storage": "file", "num_replicas": 1}
        made = self.api(f"STREAM.CREATE.{name}", {**wanted, **config})
        assert "error" not in made, made
        self._made.append(name)
        return name

    def delete(self, name: str) -> None:
        """Delete a stream."""
        self.api(f"STREAM.DELETE.{name}")

    def last(self, name: str) -> int:
        """The sequence of the last message; 0 for a stream that was never written to."""
        return int(self.api(f"STREAM.INFO.{name}")["state"]["last_seq"])

    def count(self, name: str) -> int:
        """How many messages a stream has."""
        return int(self.api(f"STREAM.INFO.{name}")["state"]["messages"])

    def messages(self, stream: str, subject: str | None = None) -> list[Arrived]:
        """All of a stream, or of one of its subjects, in order."""
        self.api("INFO")
        assert self._connection is not None
        return self._loop.ask(_read_all(self._connection, stream, subject), 60)

    def publish(self, subject: str, body: bytes) -> None:
        """A message that no outbox wrote, kept by its stream."""

        async def send(connection: Connection) -> bytes:
            return bytes((await connection.request(subject, body, timeout=10)).data)

        self.api("INFO")
        assert self._connection is not None
        assert "seq" in json.loads(self._loop.ask(send(self._connection), 20))

    def close(self) -> None:
        """Delete what was made, and what consumers keep beside it."""
        kept = self.api(f"CONSUMER.NAMES.{RETRY_STREAM}").get("consumers") or []
        for name in self._made:
            self.delete(name)
            for durable in kept:
                if durable.partition("@")[2].startswith(name):
                    self.api(f"CONSUMER.DELETE.{RETRY_STREAM}.{durable}")
            self.api(f"STREAM.PURGE.{DEAD_STREAM}", {"filter": f"pillarbox.dead.*.{name}"})
        self._loop.stop(self._connection.farewell() if self._connection else None)


async def _read_all(connection: Connection, stream: str, subject: str | None) -> list[Arrived]:
    """By a consumer that acknowledges nothing and goes away by itself."""
    config = {"ack_policy": "none", "deliver_policy": "all", "mem_storage": True, "inactive_threshold": 5_000_000_000}
    if subject is not None:
        config["filter_subject"] = subject
    made = await connection.ask(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}, 10)
    waiting = int(made["num_pending"])
    if not waiting:
        return []
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox)
    question = json.dumps({"batch": waiting, "expires": 20_000_000_000}).encode()
    await connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made['name']}", question, reply=inbox)
    found = []
    for _ in range(waiting):
        message = await subscription.next_msg(20)
        headers = read(message.headers)
        key = headers.pop("key", None)
        found.append(Arrived(headers, message.data, key, None, message.metadata.sequence.stream))
    await subscription.unsubscribe()
    return found


@dataclass(frozen=True)
class OwnNats(Nats):
    """``extra``: further lines of the configuration. ``ready``: whether it answers at a port."""

    extra: str = ""
    ready: Callable[[int], bool] = answers

    @property
    def url(self) -> str:
        """Without user."""
        return f"nats://127.0.0.1:{self.place.port(PORT)}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.place.port(PORT)

    def send(self, number: signal.Signals) -> None:
        """A signal to the server."""
        self.parts()[self.name].send(number)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.parts()[self.name].kill()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        process = self.parts()[self.name]
        if process.pid() is None:
            process.spawn([program(Place.of_checkout()), "-c", self._configuration()])
        process.wait(lambda: self.ready(self.port), seconds=20)

    def _configuration(self) -> Path:
        path = super()._configuration()
        path.write_text(path.read_text() + self.extra)
        return path


@contextmanager
def own_nats(extra: str = "", ready: Callable[[int], bool] = answers) -> Iterator[OwnNats]:
    """Started in a tenth of a second; its data goes with it."""
    with tempfile.TemporaryDirectory(prefix="pillarbox-nats-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        server = OwnNats(Place(folder, folder, folder, _free_ports()), extra=extra, ready=ready)
        try:
            server.start()
            yield server
        finally:
            server.end()


def _free_ports() -> int:
    # Below 32768: above it an outgoing connection may hold a port by the time the server starts.
    first = 26_000 + os.getpid() % 60 * 60
    for block in (*range(first, 30_000, PORTS_IN_A_BLOCK), *range(26_000, first, PORTS_IN_A_BLOCK)):
        if port_is_free(block + PORT):
            return block
    raise RuntimeError("no free ports")
