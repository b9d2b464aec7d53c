"""A Kafka Connect worker with Debezium's MySQL connector, on 127.0.0.1, gone when the block ends.

The worker is one version behind the brokers: Debezium 3.6 uses a class that kafka-clients 4.4.0 has moved.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from services import maven
from services.place import Place, port_is_free

WORKER = ("org.apache.kafka:connect-runtime:4.3.1", "org.slf4j:slf4j-simple:1.7.36")
DEBEZIUM = ("io.debezium:debezium-connector-mysql:3.6.1.Final",)
VERSIONS = {"connect": WORKER[0].rpartition(":")[2], "debezium": DEBEZIUM[0].rpartition(":")[2]}
JVM = ["-Xmx512m", "-Xms512m", "-XX:+UseSerialGC", "-Xss512k", "-XX:ReservedCodeCacheSize=64m"]
START = 120.0  # seconds for the worker's REST interface
MOVE = 60.0  # seconds for a connector to start or to stop


class Connect:
    """The worker's REST interface. RuntimeError with the worker's own words when it refuses or fails."""

    def __init__(self, port: int, internal: str) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self.internal = internal
        """The beginning of its topics' names, which outlive it."""

    def put(self, name: str, configuration: Mapping[str, str]) -> None:
        """Make a connector and wait until its task runs."""
        self._call("PUT", f"/connectors/{name}/config", configuration)
        self._await_running(name)

    def stop(self, name: str) -> None:
        """Its task ends, its position is kept."""
        self._call("PUT", f"/connectors/{name}/stop")
        self._await(lambda: not self._status(name)["tasks"], f"{name} to stop")

    def resume(self, name: str) -> None:
        """Start it where it stopped; does not wait."""
        self._call("PUT", f"/connectors/{name}/resume")

    def delete(self, name: str) -> None:
        """It has to be stopped."""
        self._call("DELETE", f"/connectors/{name}/offsets")
        self._call("DELETE", f"/connectors/{name}")

    def check(self, name: str) -> None:
        """RuntimeError if its task has failed."""
        for task in self._status(name)["tasks"]:
            if task["state"] == "FAILED":
                raise RuntimeError(f"the task of {name} failed: {task['trace'][:2_000]}")

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            return self._call("GET", "/connectors") is not None
        except (OSError, RuntimeError, LookupError):  # REST is there before its resources are
            return False

    def _await_running(self, name: str) -> None:
        def running() -> bool:
            self.check(name)
            tasks = self._status(name)["tasks"]
            return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

        self._await(running, f"{name} to run")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + MOVE
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited {MOVE:g} s for {what}")
            time.sleep(0.05)

    def _status(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._call("GET", f"/connectors/{name}/status")
        except LookupError:  # not known yet
            return {"tasks": []}
        return found

    def _call(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        deadline = time.monotonic() + MOVE
        while True:
            code, words = self._ask(method, path, None if body is None else json.dumps(body).encode())
            if code < 300:
                return json.loads(words or "null")
            if code == 404:
                raise LookupError(words)
            if code != 409 or time.monotonic() > deadline:  # 409: it is sharing out its work just now
                raise RuntimeError(f"Connect refused {method} {path}: {code} {words[:1_000]}")
            time.sleep(0.2)

    def _ask(self, method: str, path: str, data: bytes | None) -> tuple[int, str]:
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")


@contextmanager
def connect_worker(bootstrap: str, name: str) -> Iterator[Connect]:
    """Started; ``name`` is its group, and the beginning of its topics' names."""
    place = Place.of_checkout()
    worker = maven.jars(place, f"connect-{VERSIONS['connect']}", *WORKER)
    plugin = maven.jars(place, f"debezium-{VERSIONS['debezium']}", *DEBEZIUM)
    port = next(port for port in range(27_000, 32_000) if port_is_free(port))
    with TemporaryDirectory(prefix="pillarbox-connect-") as folder:
        plugins = Path(folder, "plugins")
        plugins.mkdir()
        (plugins / "debezium").symlink_to(plugin)
        file, log = Path(folder, "worker.properties"), Path(folder, "log")
        settings = properties(bootstrap, name, port, plugins)
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ["java", *JVM, "-cp", f"{worker}/*", "org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
        with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=folder) as process:
            try:
                connect = Connect(port, name)
                _await_start(connect, process, log)
                yield connect
            except Exception as error:
                error.add_note(log.read_text(errors="replace")[-3_000:])
                raise
            finally:
                _end(process)


def properties(bootstrap: str, name: str, port: int, plugins: Path) -> dict[str, str]:
    """Connect's defaults, but for names, addresses and the number of its own topics' partitions."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "rest.advertised.port": str(port),
        "plugin.path": str(plugins),
        "plugin.discovery": "service_load",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "config.storage.topic": f"{name}-configs",
        "offset.storage.topic": f"{name}-offsets",
        "offset.storage.partitions": "1",
        "status.storage.topic": f"{name}-status",
        "status.storage.partitions": "1",
        "connector.client.config.override.policy": "All",
    }


def _await_start(connect: Connect, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START
    while not connect.answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the Connect worker did not start:\n{log.read_text(errors='replace')[-3_000:]}")
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
