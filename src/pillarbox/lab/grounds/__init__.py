"""The servers under the lab: places of its own on them, made for one cell, read, and removed.

>>> with database_ground(None, "W2-S5-row") as database, broker_ground(None, "W2-S5-row") as broker:
...     database.name, broker.name, database.facts([], broker.records())
('sqlite', 'embedded', ())
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import BadUrl
from ..ports import BrokerGround, DatabaseGround
from .claims import claim
from .embedded import embedded_ground
from .sqlite import sqlite_ground

__all__ = ["broker_ground", "database_ground"]


@contextmanager
def database_ground(url: str | None, cell: str) -> Iterator[DatabaseGround]:
    """Two databases for one cell, on the server at ``url``; None: SQLite files in a temporary folder.

    They are gone when the block ends, also after an error.
    """
    if url is None:
        with claim("folder", cell) as claimed, sqlite_ground(claimed) as ground:
            yield ground
        return
    raise BadUrl(f"The lab does not know the database {url!r}.")


@contextmanager
def broker_ground(url: str | None, cell: str) -> Iterator[BrokerGround]:
    """A destination for one cell, on the broker at ``url``; None: the embedded log in a temporary folder."""
    if url is None:
        with claim("folder", cell) as claimed, embedded_ground(claimed) as ground:
            yield ground
        return
    raise BadUrl(f"The lab does not know the broker {url!r}.")
