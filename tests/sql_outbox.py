"""An outbox on a real database, as the store suite and the store's own tests look into it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Engine

from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from pillarbox.ports import Delivery
from pillarbox.store import write
from pillarbox.store.engines import relay_engine
from pillarbox.store.install import install
from pillarbox.store.rowlease import RowLeaseStore
from pillarbox.testing.conformance.store_world import StoreCapabilities, StoredReceipt

EARLIER = {
    "postgresql": "{column} - {seconds} * interval '1 second'",
    "mysql": "{column} - INTERVAL {seconds} SECOND",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', {column}, '-{seconds} seconds')",
}
TABLES = ("outbox_ready", "outbox_parked", "outbox_receipt", "outbox_replay", "outbox_event")


class SqlOutbox:
    """A database with the tables in it. Implements StoreUnderTest."""

    capabilities = StoreCapabilities()

    def __init__(self, url: str, *, table_prefix: str = "") -> None:
        self.url = url
        self.table_prefix = table_prefix
        self.engine: Engine = relay_engine(url, table_prefix=table_prefix)
        self.dialect = self.engine.dialect.name
        self._engines = [self.engine]
        install(self.engine, ["outbox"])

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()

    def empty(self) -> None:
        """As it was after `install`; quicker than a new database."""
        for engine in self._engines[1:]:
            engine.dispose()
        del self._engines[1:]
        self.empty_tables()

    def empty_tables(self) -> None:
        with self.engine.begin() as connection:
            for table in TABLES:
                connection.exec_driver_sql(f"DELETE FROM {table}")

    def store(self, relay_id: str, *, lease: float = 60.0) -> RowLeaseStore:
        self._engines.append(relay_engine(self.url, table_prefix=self.table_prefix))
        return RowLeaseStore(self._engines[-1], relay_id=relay_id, lease=lease)

    def add(self, messages: Sequence[Message], more: Sequence[Destination] = ()) -> list[int]:
        rows = [write.row_of(message, more) for message in messages]
        with self.engine.begin() as connection:
            return [
                number for i in range(0, len(rows), 1_000) for number in write.insert(connection, rows[i : i + 1_000])
            ]

    def states(self) -> dict[tuple[int, int], str]:
        now = {"postgresql": "clock_timestamp()", "mysql": "UTC_TIMESTAMP(6)"}.get(self.dialect, "CURRENT_TIMESTAMP")
        with self.engine.begin() as connection:
            rows = connection.exec_driver_sql(
                "SELECT id, dest, 'SENT' FROM outbox_receipt UNION ALL SELECT id, dest, state FROM outbox_parked"
                f" UNION ALL SELECT id, dest, CASE WHEN leased_until > {now} THEN 'PROCESSING' ELSE 'PENDING' END"
                " FROM outbox_ready"
            ).all()
        return {(row[0], row[1]): row[2] for row in rows}

    def receipts(self) -> dict[tuple[int, int], StoredReceipt]:
        with self.engine.begin() as connection:
            rows = connection.exec_driver_sql(
                "SELECT id, dest, relay, token, broker_partition, broker_offset FROM outbox_receipt"
            ).all()
        return {(row[0], row[1]): StoredReceipt(*row[2:]) for row in rows}

    def parked(self) -> dict[tuple[int, int], tuple[str, int, str]]:
        with self.engine.begin() as connection:
            rows = connection.exec_driver_sql("SELECT id, dest, state, attempts, error FROM outbox_parked").all()
        return {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows}

    def pass_time(self, seconds: float) -> None:
        with self.engine.begin() as connection:
            for table, column, unless in (
                ("outbox_ready", "leased_until", "leased_until > '1971-01-01'"),
                ("outbox_parked", "due_at", "due_at IS NOT NULL"),
            ):
                earlier = EARLIER[self.dialect].format(column=column, seconds=seconds).replace("%", "%%")
                if self.dialect == "sqlite":
                    earlier = earlier.replace("%%", "%")
                connection.exec_driver_sql(f"UPDATE {table} SET {column} = {earlier} WHERE {unless}")

    def lose_event(self, number: int) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(f"DELETE FROM outbox_event WHERE id = {number:d}")

    def ready_again(self, delivery: Delivery) -> None:
        partition_no, number, dest = delivery.key
        with self.engine.begin() as connection:
            connection.exec_driver_sql(
                "INSERT INTO outbox_ready (partition_no, id, dest, lane)"
                f" VALUES ({partition_no}, {number}, {dest}, {delivery.lane})"
            )

    @contextmanager
    def broken_receipts(self) -> Iterator[None]:
        self._rename("outbox_receipt", "outbox_receipt_away")
        try:
            yield
        finally:
            self._rename("outbox_receipt_away", "outbox_receipt")

    def _rename(self, old: str, new: str) -> None:
        with self.engine.begin() as connection:
            # The view would follow the table to its new name, or stand in the way.
            connection.exec_driver_sql("DROP VIEW IF EXISTS outbox_status")
            connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Look every 10 ms, and fail after a while."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.01)
