"""SQLite as the ground: two files in a temporary folder. No server, no network, nothing to mark."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection

from .claims import Claim
from .database import Ground, ground_in
from .folders import own_folder

_SYNCHRONOUS: Final = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class Sqlite:
    """The file database."""

    name = "sqlite"
    default_port: int | None = None
    clock: str | None = None

    def settings(self, connection: Connection) -> Mapping[str, Any]:
        """The library's version, journal mode and when it waits for the disk."""
        return {
            "server_version": sqlite3.sqlite_version,
            "journal_mode": connection.exec_driver_sql("PRAGMA journal_mode").scalar_one(),
            "synchronous": _SYNCHRONOUS[int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())],
        }


@contextmanager
def sqlite_ground(claimed: Claim) -> Iterator[Ground]:
    """Two files in the claim's folder, which is removed at the end, also after an error."""
    with own_folder(claimed):
        shop, consumers = (f"sqlite:///{(claimed.folder / f'{part}.db').as_posix()}" for part in ("shop", "consumers"))
        with ground_in(Sqlite(), shop, consumers) as ground:
            yield ground
