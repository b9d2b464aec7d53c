"""The database of an inbox, for commands: it may be another one than the outbox's, and needs no outbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ..config import Config


@contextmanager
def open_inbox_engine(config: Config, *, lock: int = 5) -> Iterator[Engine]:
    """The engine of the configured database, its inbox checked: TablesMissing (PB-006) when it has none.

    ``lock``: seconds that it waits for a lock.
    """
    from ..store.engines import Timeouts, check_schema
    from ..store.transactions import Transactions
    from ..wiring import open_engine

    with open_engine(config, pool_size=2, timeouts=Timeouts(lock=lock)) as engine:
        Transactions(engine).read(lambda connection: check_schema(connection, "inbox"))
        yield engine
