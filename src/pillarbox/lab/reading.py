"""The lab's own eyes in the databases of a cell, to know when it has come to rest. Verdicts have other sources."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Engine, func, select

from ..store.engines import BEGIN_OPTION, relay_engine
from ..store.inspect import overview
from .grounds.tables import lab_notification
from .ports import DatabaseGround


class Reading:
    """The lab's own eyes in the databases of a cell: what waits in the outbox, which effects there are."""

    def __init__(self, database: DatabaseGround) -> None:
        self._shop: Engine = relay_engine(database.shop_url, pool_size=1)
        self._consumers: Engine = relay_engine(database.consumers_url, pool_size=1)

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._shop.dispose()
        self._consumers.dispose()

    def waiting(self) -> int:
        """Deliveries of the outbox that are neither sent nor given up."""
        with self._shop.connect().execution_options(**{BEGIN_OPTION: "DEFERRED"}) as connection:
            counts = overview(connection).counts
        return sum(count for state, count in counts.items() if state not in ("SENT", "DEAD"))

    def effects(self, consumer: str, event_ids: Collection[str]) -> int:
        """How many of these events the consumer has applied at least once."""
        of_them = lab_notification.c.event_id.in_(list(event_ids))
        query = select(func.count(lab_notification.c.event_id.distinct())).where(
            lab_notification.c.consumer == consumer, of_them
        )
        with self._consumers.connect().execution_options(**{BEGIN_OPTION: "DEFERRED"}) as connection:
            return connection.scalar(query) or 0
