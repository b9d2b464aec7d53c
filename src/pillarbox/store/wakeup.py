"""PostgreSQL tells relays that something was committed: NOTIFY by the writer, LISTEN on a connection of its own.

Off unless asked for. A commit that notifies takes one lock that all such commits of the whole server share, from before
its record is flushed until after, so that they commit one after the other; ``docs/deployment.md`` has what that costs.
Nothing rests on it: a notification that is lost leaves the event to the relay's polling.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine

from ..errors import ConfigError, PillarboxError, UsedAfterFork
from .engines import connect_error, relay_engine
from .failures import shown
from .naming import check_prefix

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("pillarbox.store")

CHANNEL: Final = "pillarbox_outbox"
"""One for a database and table prefix. Outboxes in several schemas share it: a relay that is woken for another looks
once in vain."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds between attempts to connect again, doubling from one to the other."""

_WAIT: Final = 1.0  # seconds until the thread looks whether it shall end


def channel(table_prefix: str) -> str:
    """The channel of the outbox with this prefix."""
    return table_prefix + CHANNEL


def notify(connection: Connection, where: str = CHANNEL) -> None:
    """In the caller's transaction: PostgreSQL delivers it with the commit, and once however often it is called."""
    connection.exec_driver_sql(f"SELECT pg_notify('{where}', '')")


@contextmanager
def listening(database: str, wake: Callable[[], None], *, table_prefix: str = "") -> Iterator[Listener]:
    """Call ``wake`` for every notification, on a thread of its own, for the length of the block.

    Raises ConfigError (PB-001) when ``database`` is not PostgreSQL, BadUrl (PB-002), MissingDriver (PB-003). A server
    that is away is waited for.
    """
    listener = Listener(database, wake, table_prefix=table_prefix)
    listener.start()
    try:
        yield listener
    finally:
        listener.stop()


class Listener:
    """Listens with one connection of its own, which is neither the relay's nor the application's."""

    def __init__(self, database: str, wake: Callable[[], None], *, table_prefix: str = "") -> None:
        engine = relay_engine(database, pool_size=1)
        if engine.dialect.name != "postgresql" or engine.dialect.driver != "psycopg":
            raise ConfigError(
                f"Only PostgreSQL with psycopg can be listened to, not {shown(engine.url)}.",
                fix="Leave relay.listen out; the relay polls.",
            )
        self._engine = engine
        self._channel = channel(check_prefix(table_prefix))
        self._wake = wake
        self._ends = threading.Event()
        self._connected = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pillarbox-listener", daemon=True)
        self._pid = os.getpid()

    @property
    def connected(self) -> bool:
        """True while notifications can come."""
        return self._connected.is_set()

    def start(self) -> None:
        """Begin. UsedAfterFork (PB-028) in a process that did not make it."""
        if os.getpid() != self._pid:
            raise UsedAfterFork("This listener was made in another process.")
        self._thread.start()

    def stop(self) -> None:
        """End the thread and its connection, within about a second."""
        self._ends.set()
        self._thread.join(_WAIT + 5)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._ends.is_set():
            began = time.monotonic()
            try:
                with _connect(self._engine) as connection:
                    self._listen(connection)
            except Exception as error:  # noqa: BLE001 - the driver's errors, told in the house's words
                self._connected.clear()
                if time.monotonic() - began > LONGEST_PAUSE:
                    pause = FIRST_PAUSE
                log.warning("not listening, trying again in %g s: %s", pause, self._explained(error))
            self._ends.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {self._channel}")
        self._connected.set()
        log.info("listening for commits on channel %s", self._channel)
        self._wake()  # what was committed while nobody listened
        while not self._ends.is_set():
            for _ in connection.notifies(timeout=_WAIT):
                self._wake()
                if self._ends.is_set():
                    break
        self._connected.clear()

    def _explained(self, error: Exception) -> PillarboxError | Exception:
        return connect_error(error, self._engine.url)


def _connect(engine: Engine) -> psycopg.Connection[Any]:
    """Not from the pool: it stays busy, and must neither time out nor count as the relay's."""
    import psycopg

    arguments, options = engine.dialect.create_connect_args(engine.url)
    ours: dict[str, Any] = {
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "application_name": "pillarbox-listener",
    }
    return psycopg.connect(*arguments, **(ours | dict(options)), autocommit=True)
