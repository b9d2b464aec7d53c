"""An outbox on a real database, as the suite of the partition lease looks into it. Implements OrderedUnderTest."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, text

from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from pillarbox.ports import Stream, WorkKey
from pillarbox.store import write
from pillarbox.store.dbtime import after
from pillarbox.store.engines import relay_engine
from pillarbox.store.ordered import PartitionStore
from pillarbox.store.registration import Registration
from pillarbox.testing.conformance.ordered_store_world import OrderedCapabilities
from tests.sql_outbox import EARLIER, SqlOutbox


class OrderedOutbox(SqlOutbox):
    """One outbox, emptied before each test."""

    def __init__(self, url: str, *, table_prefix: str = "") -> None:
        super().__init__(url, table_prefix=table_prefix)
        self.ordered: list[PartitionStore] = []
        self.pool = relay_engine(url, pool_size=20, table_prefix=table_prefix)
        self._engines.append(self.pool)
        sqlite = self.dialect == "sqlite"
        self.capabilities: OrderedCapabilities = OrderedCapabilities(sees_open_writers=not sqlite)  # type: ignore[assignment]

    def empty(self) -> None:
        self.close_stores()
        super().empty_tables()
        with self.engine.begin() as connection:
            for table in ("outbox_lane", "outbox_relay", "outbox_partition"):
                connection.execute(text(f"DELETE FROM {table}"))
            connection.execute(text("UPDATE outbox_meta SET lease = 'row'"))

    def close(self) -> None:
        self.close_stores()
        super().close()

    def close_stores(self) -> None:
        for store in self.ordered:  # but the pool stays: connecting anew would take most of a test's time
            store._database.close()
            store._renewals.close()
        self.ordered.clear()

    def ordered_store(self, relay_id: str, *, lease: float = 60.0) -> PartitionStore:
        store = PartitionStore(self.pool, relay_id=relay_id, lease=lease, host="here", version="1.2.3")
        self.ordered.append(store)
        return store

    def schedule(self, message: Message, seconds: float) -> int:
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        with self.engine.begin() as connection:
            return write.insert(connection, [write.row_of(message, due=due)])[0]

    def begin(self) -> "Writer":
        return Writer(self.engine.connect())

    def pass_time(self, seconds: float) -> None:
        super().pass_time(seconds)
        with self.engine.begin() as connection:
            for table, column in (
                ("outbox_partition", "leased_until"),
                ("outbox_relay", "seen_until"),
                ("outbox_lane", "due_at"),
            ):
                earlier = EARLIER[self.dialect].format(column=column, seconds=seconds).replace(":", "\\:")
                connection.execute(text(f"UPDATE {table} SET {column} = {earlier} WHERE {column} > '1971-01-01'"))

    def lose_work(self, key: WorkKey) -> None:
        with self.engine.begin() as connection:
            where = "partition_no = :partition_no AND id = :id AND dest = :dest"
            connection.execute(text(f"DELETE FROM outbox_ready WHERE {where}"), key._asdict())

    def edit_partition(self, number: int, **columns: int) -> None:
        changes = ", ".join(f"{name} = {value:d}" for name, value in columns.items())
        self.run(f"UPDATE outbox_partition SET {changes} WHERE partition_no = {number}")

    def lease_for(self, number: int, seconds: float) -> None:
        with self.engine.begin() as connection:
            until = after(connection, str(seconds))
            connection.execute(
                text(f"UPDATE outbox_partition SET leased_until = {until} WHERE partition_no = {number}")
            )

    def empty_partitions(self) -> None:
        self.run("DELETE FROM outbox_partition")

    def set_mode(self, stream: Stream, mode: str) -> None:
        where = " AND ".join(f"{name} = {value}" for name, value in stream._asdict().items())
        self.run(f"UPDATE outbox_lane SET mode = '{mode}', due_at = NULL WHERE {where}")

    def register_row_relay(self, seconds: float) -> None:
        with self.engine.begin() as connection:
            Registration("row-relay", "row").enter(connection, seconds)

    def run(self, sql: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(sql))


class Writer:
    """A transaction of the application's that stays open."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        connection.begin()

    def add(self, messages: Sequence[Message], more: Sequence[Destination] = ()) -> list[int]:
        return write.insert(self.connection, [write.row_of(message, more) for message in messages])

    def commit(self) -> None:
        self.connection.commit()
        self.connection.close()

    def rollback(self) -> None:
        self.connection.rollback()
        self.connection.close()
