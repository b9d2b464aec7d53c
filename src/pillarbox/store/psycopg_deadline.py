"""psycopg with a deadline on every answer: the driver alone waits for ever for a server that is frozen."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")
_CHECK_EVERY = 0.5


class DeadlineConnection(psycopg.Connection[Any]):
    """A connection that closes itself and raises OperationalError when an answer takes too long (seconds)."""

    answer_within: float = 30.0

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Drive one exchange with the server. The driver resumes ``gen`` at each interval even if nothing came."""
        options.setdefault("interval", _CHECK_EVERY)
        return super().wait(self._until_deadline(gen), **options)

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


def connect_with_deadline(seconds: float, *arguments: Any, **parameters: Any) -> DeadlineConnection:
    """Connect like ``psycopg.connect``; each answer afterwards must come within ``seconds``."""
    connection = DeadlineConnection.connect(*arguments, **parameters)
    connection.answer_within = seconds
    return connection
