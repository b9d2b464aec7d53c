"""What waits where, several times a second, while the services work."""

import threading
import time
from typing import NamedTuple, Self

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

EVERY_SECONDS = 0.1


class Sample(NamedTuple):
    """Seconds since the start; events that wait in both outboxes; orders whose fate is not known."""

    at: float
    waiting: int
    open: int


class Watch:
    """Samples from entering the block to leaving it. ``kills`` are the moments that were noted, by service."""

    def __init__(self, orders: Engine, stock: Engine) -> None:
        self.samples: list[Sample] = []
        self.kills: list[tuple[float, str]] = []
        self._orders, self._stock = orders, stock
        self._start = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)

    def note_kill(self, name: str) -> None:
        """A service was killed just now."""
        self.kills.append((time.monotonic() - self._start, name))

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    @property
    def peak(self) -> Sample:
        """The sample with the longest backlog."""
        return max(self.samples, key=lambda one: one.waiting, default=Sample(0.0, 0, 0))

    def _run(self) -> None:
        while not self._end.wait(EVERY_SECONDS):
            try:
                waiting = _count(self._orders, WAITING) + _count(self._stock, WAITING)
                still_open = _count(self._orders, "SELECT COUNT(*) FROM orders WHERE state = 'placed'")
            except SQLAlchemyError as error:
                print(f"no sample: {error}", flush=True)
                continue
            self.samples.append(Sample(self.seconds, waiting, still_open))


WAITING = "SELECT (SELECT COUNT(*) FROM outbox_ready) + (SELECT COUNT(*) FROM outbox_parked)"


def _count(engine: Engine, sql: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text(sql)).scalar() or 0)
