"""A RabbitMQ node of a test's own, with TLS: it may be restarted without disturbing others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.place import PORTS_IN_A_BLOCK, Place, port_is_free
from services.rabbitmq import AMQP, MANAGEMENT, SERVER, RabbitMQ
from tests.certificates import Authority

TLS = 34
LISTENER = """\
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {folder}/ca.pem
ssl_options.certfile = {folder}/server.pem
ssl_options.keyfile = {folder}/server.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
"""


@dataclass(frozen=True)
class OwnRabbitMQ(RabbitMQ):
    """``certificates`` is a folder: ``ca.pem``, and .pem and .key of ``server`` (named localhost) and ``client``."""

    certificates: Path = Path()

    @property
    def url(self) -> str:
        """Without TLS."""
        return f"amqp://guest:guest@127.0.0.1:{self.place.port(AMQP)}/"

    def tls(self, host: str = "localhost", **files: Path) -> str:
        """With TLS, and these files as options."""
        query = "&".join(f"{name}={path}" for name, path in files.items())
        return f"amqps://guest:guest@{host}:{self.place.port(TLS)}/?{query}"

    @property
    def management(self) -> str:
        """The address of the management API; user and password are guest."""
        return f"http://127.0.0.1:{self.place.port(MANAGEMENT)}"

    def restart(self) -> None:
        """End it in order, as a package upgrade does, and start it again."""
        self.parts()[self.name].end(seconds=30)
        self.start()

    def _environment(self, owner: str | None) -> dict[str, str]:
        found: Mapping[str, str] = super()._environment(owner)
        with Path(found["RABBITMQ_CONFIG_FILE"]).open("a") as file:
            file.write(LISTENER.format(port=self.place.port(TLS), folder=self.certificates))
        return dict(found)


@contextmanager
def own_rabbitmq() -> Iterator[OwnRabbitMQ]:
    """Started; five to ten seconds. FileNotFoundError without the program."""
    if not SERVER.exists():
        raise FileNotFoundError(SERVER)
    with tempfile.TemporaryDirectory(prefix="pillarbox-rabbitmq-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        authority = Authority(folder / "tls")
        authority.issue("server", "localhost")
        authority.issue("client", "relay.example")
        node = OwnRabbitMQ(Place(folder, folder, folder, _free_ports()), certificates=folder / "tls")
        try:
            node.start()
            yield node
        finally:
            node.end()


def _free_ports() -> int:
    # Below 32768: above it an outgoing connection may hold a port by the time the node starts.
    first = 22_000 + os.getpid() % 60 * 60
    for block in (*range(first, 26_000, PORTS_IN_A_BLOCK), *range(22_000, first, PORTS_IN_A_BLOCK)):
        if all(port_is_free(block + offset) for offset in range(AMQP, TLS + 1)):
            return block
    raise RuntimeError("no free ports")
