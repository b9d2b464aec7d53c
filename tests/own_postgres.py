"""A PostgreSQL server of a test's own: it may be killed, and its disk be filled, without disturbing others."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from services.place import user_for
from services.postgres import BINARIES

OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_prepared_transactions": "10",
    "fsync": "off",  # the process is killed here, not the machine
}


class OwnPostgres:
    """``url`` is of an empty database. ``small`` is a folder for a tablespace of 24 MiB, None where there is no right
    to mount one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._user = user_for("postgres")
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.small: Path | None = None
        self.url = f"postgresql+psycopg://pillarbox@127.0.0.1:{self._port}/postgres"
        self._own(folder)
        made = [BINARIES / "initdb", "-D", folder / "data", "-U", "pillarbox", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(made, user=self._user, cwd="/", check=True, capture_output=True, timeout=120)

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = [f"--{name}={value}" for name, value in OPTIONS.items()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [BINARIES / "postgres", "-D", self._folder / "data", "-p", str(self._port), *options],
                user=self._user,
                cwd="/",
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 60
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url.replace("+psycopg", ""), connect_timeout=2).close()
                return
            assert time.monotonic() < deadline, (self._folder / "log").read_text()[-2_000:]
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGQUIT: it ends at once, without a checkpoint, as after a crash, and recovers at the next start."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)

    def mount_small(self) -> bool:
        """Make ``small``; False where that is not allowed."""
        place = self._folder / "small"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], capture_output=True, timeout=20, check=False
        )
        if done.returncode != 0:
            return False
        self.small = place / "space"
        self.small.mkdir()
        self._own(self.small)
        return True

    def close(self) -> None:
        """End it, and unmount."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        if self.small is not None:
            subprocess.run(["umount", self.small.parent], check=True, timeout=20)

    def _own(self, folder: Path) -> None:
        if self._user is not None:
            shutil.chown(folder, self._user)


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """Started; about two seconds. FileNotFoundError without the programs."""
    if not (BINARIES / "initdb").exists():
        raise FileNotFoundError(BINARIES / "initdb")
    folder = Path(tempfile.mkdtemp(prefix="pillarbox-postgres-"))
    os.chmod(folder, 0o755)
    server = OwnPostgres(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    # Below 32768: above it an outgoing connection may hold the port by the time the server starts.
    for port in range(26_000 + os.getpid() % 4_000, 32_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")
