"""A MySQL 9 server of a test's own: it may be killed, refuse writes and run out of disk without disturbing others."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pymysql

from services.mysql import MySQL, mysql9
from services.place import Place, port_is_free, user_for

SMALL_MIB = 8
OPTIONS = (
    "--innodb-buffer-pool-size=32M",
    "--innodb-redo-log-capacity=16M",
    "--innodb-data-file-path=ibdata1:12M:autoextend:max:20M",
    "--performance-schema=OFF",
    # The process is killed here, not the machine: what it has written is there after the restart.
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
)


class OwnMySQL:
    """``url`` is of an empty database, and its user may do anything."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self._small = folder / "small"
        self._mounted = False
        shared = Place.of_checkout()
        found = mysql9(shared)
        place = Place(shared.checkout, folder, shared.cache, _free_port() - found.port_offset)
        # Tablespaces outside of the data folder have to be in a known one, and there from the start on.
        self._server: MySQL = replace(
            found, place=place, options=(*found.options, *OPTIONS, f"--innodb-directories={self._small}", *options)
        )
        self.url = self._server.settings()[found.variable]

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._server.start()

    def kill(self) -> None:
        """SIGKILL."""
        self._server.process.kill()

    def execute(self, *statements: str) -> None:
        """As the administrator, each committed by itself."""
        port = self._server.place.port(self._server.port_offset)
        login = {"host": "127.0.0.1", "port": port, "user": "pillarbox", "password": "pillarbox"}
        with pymysql.connect(**login, database="pillarbox", autocommit=True, read_timeout=30) as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    def small_tablespace(self) -> str:
        """A tablespace that is full with a few MiB: on a file system that small, or where mounting one is not allowed,
        the server's own, whose file may not grow beyond 20 MiB."""
        if not self._mounted and not self._mount():
            return "innodb_system"
        self.execute(f"CREATE TABLESPACE small ADD DATAFILE '{self._small}/small.ibd'")
        return "small"

    def drop_small_tablespace(self) -> None:
        """It has to be empty."""
        if self._mounted:
            self.execute("DROP TABLESPACE small")

    def close(self) -> None:
        """End it, and unmount."""
        self.kill()
        if self._mounted:
            subprocess.run(["umount", self._small], check=True, timeout=20)

    def _mount(self) -> bool:
        self._small.mkdir()
        size = f"size={SMALL_MIB}m,mode=777"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", self._small], capture_output=True, timeout=20, check=False
        )
        self._mounted = done.returncode == 0
        return self._mounted


@contextmanager
def own_mysql(*options: str) -> Iterator[OwnMySQL]:
    """Started; about three seconds. ``options`` are further ones of the server."""
    folder = Path(tempfile.mkdtemp(prefix="pillarbox-mysql-", dir=_in_memory()))
    os.chmod(folder, 0o755)
    if (owner := user_for("nobody")) is not None:
        shutil.chown(folder, owner)
    server = OwnMySQL(folder, options)
    try:
        server.start()
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _in_memory() -> Path | None:
    # A new data folder is a hundred fsyncs, which take ten seconds on a busy disk. It has 150 MiB.
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2**30 else None


def _free_port() -> int:
    # Below 32768: above it an outgoing connection may hold the port by the time the server starts.
    first = 26_000 + os.getpid() % 4_000
    return next(port for port in range(first, 32_000) if port_is_free(port))
