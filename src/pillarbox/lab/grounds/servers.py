"""Databases on servers: which kind a URL means, whose the names there are, and a cell's place among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, exc, make_url
from sqlalchemy.engine import URL

from ...errors import BadUrl
from ...store.capabilities import detect
from ...store.failures import connect_error
from ..ports import PREFIX
from .claims import abandoned, claim, claimed_here, forget
from .database import PARTS, Ground, ServerKind, administration, server_ground
from .mysql import Mariadb, Mysql
from .postgres import Postgres

CLAIMED: Final = "database"
_KINDS: Final[dict[str, ServerKind]] = {"PostgreSQL": Postgres(), "MySQL": Mysql(), "MariaDB": Mariadb()}


@contextmanager
def ground_on_server(url: str, cell: str) -> Iterator[Ground]:
    """The ground for ``cell`` on the server at ``url``. Its database is connected to and otherwise left alone."""
    server = server_url(url)
    with administration(server) as run:
        kind = run(_kind)
    with claim(CLAIMED, cell) as claimed, server_ground(kind, server, claimed) as ground:
        yield ground


def foreign_databases(url: str, prefix: str) -> list[str]:
    """Databases whose names begin so and that no run of the lab has made."""
    with administration(server_url(url)) as run:
        found: Mapping[str, bool] = run(lambda connection: _kind(connection).found(connection, prefix))
    ours = {f"{name}_{part}" for name in claimed_here() for part in PARTS}  # perhaps killed before the mark was set
    return sorted(name for name, marked in found.items() if not marked and name not in ours)


def remove_left_databases(url: str) -> list[str]:
    """Remove the databases that killed runs on this machine have left on the server; returns their names."""
    removed: list[str] = []
    with administration(server_url(url)) as run, abandoned(CLAIMED) as claims:
        left = {f"{one.name}_{part}": one for one in claims for part in PARTS}

        def remove(connection: Connection) -> None:
            kind = _kind(connection)
            for name in sorted(kind.found(connection, PREFIX).keys() & left.keys()):
                kind.drop(connection, name)
                removed.append(name)

        if left:
            run(remove)
        for one in {left[name] for name in removed}:
            forget(one.name)
    return removed


def server_url(url: str) -> URL:
    """The URL as SQLAlchemy has it; BadUrl (PB-002) for SQLite, whose files the lab makes itself."""
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (exc.ArgumentError, ImportError, ValueError) as error:
        raise connect_error(error, url) from error
    if backend == "sqlite":
        raise BadUrl("The lab makes its own SQLite files.", fix="Leave --database out, or name a server.")
    return parsed


def _kind(connection: Connection) -> ServerKind:
    return _KINDS[detect(connection).server]
