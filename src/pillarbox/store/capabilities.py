"""What this very server can do, by its own version: a URL does not tell MySQL from MariaDB, nor old from new."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Connection

from ..errors import BadUrl

ClaimStrategyName = Literal["skip-locked-mysql", "postgres", "compare-and-set", "sqlite"]

_OLDEST: Final = {"MySQL": (5, 7), "MariaDB": (10, 2), "PostgreSQL": (12,), "SQLite": (3, 24)}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """A server and what differs between servers. ``version`` is as the server says it, e.g. (10, 11, 19)."""

    server: Literal["MySQL", "MariaDB", "PostgreSQL", "SQLite"]
    version: tuple[int, ...]
    claim: ClaimStrategyName
    skip_locked: bool
    insert_returning: bool

    def __str__(self) -> str:
        return f"{self.server} {'.'.join(map(str, self.version))}"


def detect(connection: Connection) -> Capabilities:
    """Ask the server for its version, in one statement. BadUrl (PB-002) when Pillarbox does not work with it."""
    dialect = connection.dialect.name
    if dialect == "sqlite":
        return of_version("SQLite", str(connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()))
    if dialect == "postgresql":
        return of_version("PostgreSQL", str(connection.exec_driver_sql("SHOW server_version").scalar_one()))
    if dialect in {"mysql", "mariadb"}:
        text = str(connection.exec_driver_sql("SELECT VERSION()").scalar_one())
        return of_version("MariaDB" if "mariadb" in text.lower() else "MySQL", text)
    raise BadUrl(f"Pillarbox does not work with {dialect}.")


def of_version(server: Literal["MySQL", "MariaDB", "PostgreSQL", "SQLite"], text: str) -> Capabilities:
    """The capabilities of a server that gives ``text`` as its version."""
    version = _numbers(text)
    if version < _OLDEST[server]:
        oldest = ".".join(map(str, _OLDEST[server]))
        raise BadUrl(f"{server} {text} is too old, {oldest} or newer is needed.", fix="Use a newer server.")
    match server:
        case "SQLite":
            return Capabilities(server, version, "sqlite", False, version >= (3, 35))
        case "PostgreSQL":
            return Capabilities(server, version, "postgres", True, True)
        case "MariaDB":
            skips = version >= (10, 6)
            return Capabilities(server, version, _mysql_claim(skips), skips, version >= (10, 5))
        case "MySQL":
            skips = version >= (8, 0, 1)
            return Capabilities(server, version, _mysql_claim(skips), skips, False)


def _mysql_claim(skips: bool) -> ClaimStrategyName:
    return "skip-locked-mysql" if skips else "compare-and-set"


def _numbers(text: str) -> tuple[int, ...]:
    # MariaDB behind old replication protocols says "5.5.5-10.11.6-MariaDB".
    found = re.match(r"\d+(?:\.\d+)*", text.removeprefix("5.5.5-"))
    return tuple(int(part) for part in found.group().split(".")) if found else ()
