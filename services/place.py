"""Where one checkout keeps its servers: folders, ports and the lock.

Everything is under the checkout's git-ignored `.services/`. Two cases need another folder for the data: a server that
root starts under an own user (`nobody`, `postgres`, `rabbitmq`) has to be able to walk into it, and MySQL's unix socket
may have at most 107 characters (unix(7), sun_path). Then a temporary folder is taken and remembered in `place.json`.
"""

import fcntl
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LONGEST_SOCKET_PATH = 107
# Ports come in blocks, so that two checkouts can have their servers up side by side. They stay below 32768, where
# Linux begins to hand out ports to outgoing connections: such a connection may hold a server's port.
PORT_BLOCKS = range(21000, 22000, 100)
PORTS_IN_A_BLOCK = 60


@dataclass(frozen=True, slots=True)
class Place:
    """The folders and ports of one checkout's servers."""

    checkout: Path
    folder: Path
    cache: Path
    first_port: int

    @classmethod
    def of_checkout(cls) -> "Place":
        """The place of the checkout that this file is in; chosen and remembered at the first call."""
        checkout = Path(__file__).resolve().parent.parent
        own = checkout / ".services"
        own.mkdir(exist_ok=True)
        memory = own / "place.json"
        known = json.loads(memory.read_text()) if memory.exists() else {}
        if known.get("checkout") != str(checkout):
            if known:  # this is a copy of another checkout, whose ports, data and processes are not ours
                shutil.rmtree(own)
                own.mkdir()
            known = {"checkout": str(checkout), "folder": str(_choose_folder(own)), "first_port": _choose_ports()}
            memory.write_text(json.dumps(known))
        return cls(checkout, Path(known["folder"]), _cache_folder(), int(known["first_port"]))

    @property
    def env_file(self) -> Path:
        return self.checkout / ".services" / "env"

    def port(self, offset: int) -> int:
        assert 0 <= offset < PORTS_IN_A_BLOCK
        return self.first_port + offset

    def path(self, *parts: str, owner: str | None = None) -> Path:
        """A folder below the data folder, made when missing; `owner` gets it when root asks."""
        path = self.folder.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        if owner is not None and os.geteuid() == 0:
            _give(path, owner)
        return path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One `up`, `down` or fault at a time: two at once would start a server twice."""
        with locked(self.checkout / ".services" / "lock"):
            yield


def user_for(name: str) -> str | None:
    """The user to run a server as: `name` for root (these servers refuse to be root), else None: as we are."""
    return name if os.geteuid() == 0 else None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an advisory lock on `path`, across processes; waits for it as long as it takes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def passable(folder: Path) -> bool:
    """Whether another user can walk into `folder`: every parent has the x bit for others."""
    return all(parent.stat().st_mode & 0o001 for parent in (folder, *folder.parents))


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _choose_folder(own: Path) -> Path:
    longest_socket = own / "run" / "mariadb102.sock"
    if len(str(longest_socket)) <= LONGEST_SOCKET_PATH and (os.geteuid() != 0 or passable(own)):
        return own
    folder = Path(tempfile.mkdtemp(prefix="pillarbox-services-"))
    folder.chmod(0o755)
    return folder


def _choose_ports() -> int:
    for first in PORT_BLOCKS:
        if all(port_is_free(first + offset) for offset in range(PORTS_IN_A_BLOCK)):
            return first
    raise RuntimeError(f"no block of free ports in {PORT_BLOCKS.start}-{PORT_BLOCKS.stop}")


def _cache_folder() -> Path:
    """Downloads, shared by all checkouts. Root's is not in its home, where no other user can walk in."""
    if chosen := os.environ.get("PILLARBOX_SERVICES_CACHE"):
        folder = Path(chosen).resolve()
    elif os.geteuid() == 0:
        folder = Path("/var/cache/pillarbox")
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pillarbox"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _give(path: Path, owner: str) -> None:
    import pwd

    account = pwd.getpwnam(owner)
    os.chown(path, account.pw_uid, account.pw_gid)
