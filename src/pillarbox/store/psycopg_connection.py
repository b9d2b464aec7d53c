"""psycopg's connection as a relay needs it: a deadline on every answer, and rows in binary where asked for.

The driver alone waits for ever for a server that is frozen but connected. Text is its format for rows, and hexadecimal
text is a slow way for payloads.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from sqlalchemy import Connection

T = TypeVar("T")
_CHECK_EVERY = 0.5


class RelayConnection(psycopg.Connection[Any]):
    """A connection that closes itself and raises OperationalError when an answer takes too long (seconds)."""

    answer_within: float = 30.0
    binary_rows: bool = False

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Drive one exchange with the server. The driver resumes ``gen`` at each interval even if nothing came."""
        options.setdefault("interval", _CHECK_EVERY)
        return super().wait(self._until_deadline(gen), *arguments, **options)

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        """A cursor; in binary while ``binary_rows`` is set."""
        if self.binary_rows:
            options.setdefault("binary", True)
        return super().cursor(*arguments, **options)

    def _until_deadline(self, exchange: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        deadline = time.monotonic() + self.answer_within
        try:
            wanted = next(exchange)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()  # the state of the exchange is unknown: nobody may use this connection again
                    raise psycopg.OperationalError(f"no answer from the server within {self.answer_within:g} s")
                wanted = exchange.send(ready)
        except StopIteration as done:
            result: T = done.value
            return result


def connect(answer_within: float, *arguments: Any, **parameters: Any) -> RelayConnection:
    """Connect like ``psycopg.connect``."""
    connection = RelayConnection.connect(*arguments, **parameters)
    connection.answer_within = answer_within
    return connection


@contextmanager
def binary_rows(connection: Connection) -> Iterator[None]:
    """Statements inside get their rows in binary, if the connection is one of ours."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, RelayConnection):
        yield
        return
    driver.binary_rows = True
    try:
        yield
    finally:
        driver.binary_rows = False
