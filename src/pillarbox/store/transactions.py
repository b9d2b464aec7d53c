"""Short transactions on the relay's own engine, tried again when the database asks for that."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, exc

from ..errors import UsedAfterFork
from .engines import BEGIN_OPTION
from .failures import Fault, connect_error, fault_of

log = logging.getLogger("pillarbox.store")
T = TypeVar("T")

MAX_TRIES: Final = 6
_FIRST_PAUSE: Final = 0.01


class Transactions:
    """Runs functions of a connection in one transaction each.

    A deadlock, lock time-out or serialisation failure undid the transaction: it runs again, at most ``tries`` times in
    all, with growing pauses. A lost connection runs it once more on a new one, so that a restart of the database or a
    stale connection is not an outage; for that, a function must bear to be repeated after its commit went through
    unheard. After that: DatabaseBusy (PB-031), DatabaseUnavailable (PB-004) or another error of :mod:`.failures`.

    Safe between threads; ``pause`` and ``chance`` are for tests.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        tries: int = MAX_TRIES,
        pause: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**{BEGIN_OPTION: "DEFERRED"})
        self._tries = tries
        self._pause = pause
        self._chance = chance
        self._pid = os.getpid()
        # The driver's own errors, too: SQLAlchemy lets those of setting the isolation level through as they are.
        self._errors = (exc.DBAPIError, exc.TimeoutError, OSError, engine.dialect.loaded_dbapi.Error)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` and commit."""
        return self.repeat(lambda: _in_one(self._engine, work))

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work``, which changes nothing (SQLite then takes no write lock)."""
        return self.repeat(lambda: _in_one(self._reader, work))

    def close(self) -> None:
        """Nothing is kept open between transactions."""

    def repeat(self, attempt: Callable[[], T]) -> T:
        """Run ``attempt`` by these rules; it must leave nothing open behind when it fails."""
        if os.getpid() != self._pid:
            raise UsedAfterFork("A store that was opened before os.fork() is used in the child process.")
        reconnects = 1
        for left in reversed(range(self._tries)):
            try:
                return attempt()
            except self._errors as error:
                fault = fault_of(error)
                if fault is Fault.BUG:
                    raise
                if fault is Fault.READ_ONLY:
                    self._engine.dispose()  # after a failover the same name leads to another server
                reconnect = fault is Fault.LOST and reconnects > 0
                reconnects -= reconnect
                if not left or not (fault is Fault.BUSY or reconnect):
                    raise connect_error(error, self._engine.url) from error
                log.debug("transaction runs again (%s): %s", fault.name, error)
            self._pause(_FIRST_PAUSE * 2 ** (self._tries - 1 - left) * (0.5 + self._chance()))
        raise AssertionError("the last try returns or raises")


def _in_one(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.begin() as connection:
        return work(connection)
