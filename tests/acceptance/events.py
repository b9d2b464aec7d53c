"""A database with events, written as a user writes them, and dead letters made the way the relay makes them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from pillarbox import Event, Outbox, install
from pillarbox.ports import Parked, Settlement
from pillarbox.store.engines import relay_engine
from pillarbox.store.rowlease import RowLeaseStore


@dataclass(frozen=True)
class Shop:
    """URLs of a database and a broker, with what tests do to the database."""

    database: str
    broker: str
    table_prefix: str = ""

    @classmethod
    def made(cls, database: str, broker: str, table_prefix: str = "") -> Shop:
        engine = relay_engine(database)
        install(engine, table_prefix=table_prefix)
        engine.dispose()
        return cls(database, broker, table_prefix)

    @property
    def env(self) -> dict[str, str]:
        return {"PILLARBOX_DATABASE": self.database, "PILLARBOX_BROKER": self.broker}

    def place(self, count: int, *, event_type: str = "order.created", to: str = "orders") -> list[str]:
        """Commit ``count`` events; returns their ids."""
        engine = relay_engine(self.database)
        outbox = Outbox(bind=engine, table_prefix=self.table_prefix)
        with engine.begin() as connection:
            queued = [
                outbox.add(connection, Event({"n": n}, type=event_type, aggregate=("order", n)), to=to)
                for n in range(count)
            ]
        engine.dispose()
        return [str(one.id) for one in queued]

    def kill_all(self, reason: str = "unroutable: nobody wants it") -> None:
        """Give every ready event up."""
        engine = relay_engine(self.database, table_prefix=self.table_prefix)
        store = RowLeaseStore(engine, relay_id="undertaker", lease=60)
        while (claim := store.claim(1000)).deliveries:
            dead = [Parked(d.key, d.lane, "DEAD", None, 3, reason) for d in claim.deliveries]
            store.settle(Settlement(claim.token, parked=dead))
        store.close()  # takes its registration back, and closes the engine

    def execute(self, sql: str) -> None:
        """Change something by hand; names of tables without prefix."""
        engine = relay_engine(self.database, table_prefix=self.table_prefix)
        with engine.begin() as connection:
            connection.execute(text(sql))
        engine.dispose()

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """What a plain SELECT says; names of tables without prefix."""
        engine = relay_engine(self.database, table_prefix=self.table_prefix)
        try:
            with engine.connect() as connection:
                return [tuple(row) for row in connection.execute(text(sql))]
        finally:
            engine.dispose()
