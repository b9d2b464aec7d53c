"""PostgreSQL 15 of Debian 12. The user is `pillarbox`, who needs no password; fsync stays on."""

import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from services.apt import Package
from services.place import Place, user_for
from services.process import Process, run

BINARIES = Path("/usr/lib/postgresql/15/bin")
PORT_OFFSET = 20
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "wal_level": "logical",
    "max_prepared_transactions": "20",
}


@dataclass(frozen=True, slots=True)
class Postgres:
    place: Place
    name: str = "postgres"
    needs: Sequence[Package] = (Package("postgresql-15"),)

    @property
    def process(self) -> Process:
        return Process.at(self.place, self.name)

    def settings(self) -> Mapping[str, str]:
        port = self.place.port(PORT_OFFSET)
        return {"PILLARBOX_TEST_POSTGRES": f"postgresql+psycopg://pillarbox@127.0.0.1:{port}/pillarbox"}

    def parts(self) -> Mapping[str, Process]:
        return {self.name: self.process}

    def fetch(self) -> None:
        """Nothing: the package is installed."""

    def running(self) -> bool:
        return self.process.pid() is not None

    def start(self) -> None:
        if not self.running():
            owner = user_for("postgres")  # initdb and postgres refuse to be root
            data = self._make_data(owner)
            # After a SIGKILL it names a pid that is still a zombie, or somebody else's by now. Nothing of ours runs
            # here: `kill` has waited for the children too.
            (data / "postmaster.pid").unlink(missing_ok=True)
            options = [f"--{name}={value}" for name, value in OPTIONS.items()]
            command: list[str | Path] = [
                BINARIES / "postgres",
                "-D",
                data,
                "-p",
                str(self.place.port(PORT_OFFSET)),
                *options,
            ]
            self.process.spawn(command, user=owner)
        self.process.wait(self._answers, seconds=60)
        self._make_database()

    def start_part(self, part: str) -> None:
        self.start()

    def end(self) -> None:
        # SIGINT is the fast stop, which ends the sessions; SIGTERM would wait for them.
        self.process.end(signal.SIGINT, seconds=30)

    def _make_data(self, owner: str | None) -> Path:
        made = self.place.path("data") / f"{self.name}.made"
        if not made.exists():
            shutil.rmtree(self.place.folder / "data" / self.name, ignore_errors=True)
            data = self.place.path("data", self.name, owner=owner)
            # --no-sync only skips flushing the empty folder.
            flags = ["-A", "trust", "-U", "pillarbox", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
            run([BINARIES / "initdb", "-D", data, *flags], self.process.log, seconds=120, user=owner)
            made.touch()
        return self.place.folder / "data" / self.name

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.place.port(PORT_OFFSET),
            user="pillarbox",
            dbname="postgres",
            connect_timeout=5,
            autocommit=True,
        )

    def _answers(self) -> bool:
        try:
            with self._connect() as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False

    def _make_database(self) -> None:
        with self._connect() as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'pillarbox'").fetchone():
                connection.execute("CREATE DATABASE pillarbox")
