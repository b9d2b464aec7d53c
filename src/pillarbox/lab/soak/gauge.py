"""How far load and delivery are: asked from the databases themselves, past the proxies, while the rest breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from ...store.engines import BEGIN_OPTION, Timeouts, relay_engine

T = TypeVar("T")

# Narrow tables, or the end of a primary key: asking twice a second must not be a load of its own.
_WAITING = "SELECT (SELECT COUNT(*) FROM outbox_ready) + (SELECT COUNT(*) FROM outbox_parked)"
_WRITTEN = "SELECT COALESCE(MAX(id), 0) FROM outbox_event"
_APPLIED = "SELECT COALESCE(MAX(id), 0) FROM lab_notification"


@dataclass(frozen=True, slots=True)
class Sample:
    """At a moment (seconds since 1970): events that wait in the outbox, the highest event row and effect row.

    The latter two count transactions that were rolled back on some servers: progress, not an account.
    """

    at: float
    waiting: int
    written: int
    applied: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Exact counts: business rows, events that are not settled, and how many different events the consumer applied."""

    business: int
    waiting: int
    applied: int

    @property
    def at_rest(self) -> bool:
        """Everything that was committed is sent, settled and applied."""
        return self.waiting == 0 and self.applied >= self.business


class Gauge:
    """Samples on a thread of its own while the ``with`` block lasts; a database that does not answer leaves a gap."""

    def __init__(self, shop_url: str, consumers_url: str, *, every: float = 0.5) -> None:
        self.samples: list[Sample] = []
        self._every = every
        limits = Timeouts(connect=2, statement=10)
        self._shop = relay_engine(shop_url, pool_size=2, timeouts=limits)
        self._consumers = relay_engine(consumers_url, pool_size=2, timeouts=limits)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gauge", daemon=True)

    def __enter__(self) -> Gauge:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(15)
        self._shop.dispose()
        self._consumers.dispose()

    def standing(self) -> Standing | None:
        """Where it stands now; None while a database does not answer."""

        def count() -> Standing:
            # Applied first: an event that is committed in between must not look as if it were applied.
            applied = _ask(self._consumers, "SELECT COUNT(DISTINCT event_id) FROM lab_notification")
            return Standing(
                business=_ask(self._shop, "SELECT COUNT(*) FROM lab_alarm"),
                waiting=_ask(self._shop, _WAITING),
                applied=applied,
            )

        return _or_none(count)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            if (sample := _or_none(self._sample)) is not None:
                self.samples.append(sample)

    def _sample(self) -> Sample:
        waiting, written = _ask(self._shop, _WAITING), _ask(self._shop, _WRITTEN)
        return Sample(time.time(), waiting, written, _ask(self._consumers, _APPLIED))


def _ask(engine: Engine, sql: str) -> int:
    # DEFERRED: on SQLite a reader must not wait for the write lock, which a frozen process may hold.
    with engine.connect().execution_options(**{BEGIN_OPTION: "DEFERRED"}) as connection:
        return int(connection.execute(text(sql)).scalar_one())


def _or_none(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except SQLAlchemyError:
        return None
