"""Where a round happens: an outbox in memory, or on a real database."""

import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection, Engine, create_engine

from pillarbox.event.destination import Destination
from pillarbox.event.message import Message
from pillarbox.policy.lanes import lane_of, partition_of
from pillarbox.ports import OrderedStore, Stream
from pillarbox.store import write
from pillarbox.store.engines import relay_engine
from pillarbox.store.install import install
from pillarbox.store.memory_ordered import MemoryPartitionStore
from pillarbox.store.memory_outbox import MemoryOutbox, MemoryTransaction
from pillarbox.store.ordered import PartitionStore
from pillarbox.store.replay import replay

AGGREGATES = ("k6", "k25", "k35", "k0", "k72", "k1")
"""The first three share a partition, and so do the next two: late commits of one key meet later ids of another."""


class Receipt(NamedTuple):
    """Where the outbox believes an event to be."""

    relay: str
    partition: int | None
    offset: int | None


class Rows(NamedTuple):
    """All that the tables say at the end, by event row id and destination number."""

    events: dict[int, Sequence[Message]]
    ready: set[tuple[int, int]]
    parked: dict[tuple[int, int], str]
    errors: dict[tuple[int, int], str]
    receipts: dict[tuple[int, int], Receipt]
    holds: dict[Stream, str]

    def stream(self, number: int, dest: int) -> Stream:
        """The stream of a delivery."""
        first = self.events[number][0]
        lane = lane_of(first.event_id if first.key is None else first.key)
        return Stream(partition_of(lane), lane, lane_of(self.events[number][dest].destination))


class Writing(Protocol):
    """A writer's open transaction."""

    def lock(self, keys: Sequence[str]) -> None:
        """Lock aggregates until the end of the transaction, as an application does."""
        ...

    def add(self, messages: Sequence[Message], more: Sequence[Destination]) -> None:
        """Write events."""
        ...


class World(Protocol):
    """What a round needs of its place. ``lease``: seconds, short, but not shorter than a busy server needs."""

    lease: float

    def empty(self) -> None:
        """As before the first round."""
        ...

    def writing(self) -> Any:
        """A context: the transaction, committed at its end unless it raises."""
        ...

    def store(self, relay_id: str, lease: float) -> OrderedStore:
        """Of a new relay."""
        ...

    def cut(self) -> int:
        """Cut all connections to the database; returns how many."""
        ...

    def replay_dead(self) -> int:
        """Let all that is dead go again; returns how many."""
        ...

    def rows(self) -> Rows:
        """All of it."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class MemoryWorld:
    """An outbox in memory."""

    lease = 0.5

    def __init__(self) -> None:
        self.empty()

    def empty(self) -> None:
        self.outbox = MemoryOutbox()
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        with ExitStack() as locks, self.outbox.transaction() as transaction:
            yield _MemoryWriting(transaction, locks, self._locks)
            transaction.commit()  # before the locks are let go

    def store(self, relay_id: str, lease: float) -> OrderedStore:
        return MemoryPartitionStore(self.outbox, relay_id=relay_id, lease=lease)

    def cut(self) -> int:
        return 0

    def replay_dead(self) -> int:
        dead = [number for number, state in self.outbox.states().items() if state == "DEAD"]
        for number, dest in dead:
            self.outbox.replay(number, dest)
        return len(dead)

    def rows(self) -> Rows:
        tables = self.outbox.tables
        with tables.lock:
            return Rows(
                dict(tables.events),
                {(key.id, key.dest) for key in tables.ready},
                {(key.id, key.dest): row.state for key, row in tables.parked.items()},
                {(key.id, key.dest): row.error for key, row in tables.parked.items()},
                {k: Receipt(r.relay, r.partition, r.offset) for k, r in self.outbox.receipts().items()},
                {stream: row.mode for stream, row in tables.holds.items()},
            )

    def close(self) -> None:
        """Nothing."""


class _MemoryWriting:
    def __init__(self, transaction: MemoryTransaction, stack: ExitStack, locks: dict[str, threading.Lock]) -> None:
        self._transaction = transaction
        self._stack = stack
        self._locks = locks

    def lock(self, keys: Sequence[str]) -> None:
        for key in sorted(keys):
            self._stack.enter_context(self._locks[key])

    def add(self, messages: Sequence[Message], more: Sequence[Destination]) -> None:
        self._transaction.add(messages, more)


_EMPTIED = ("outbox_ready", "outbox_parked", "outbox_receipt", "outbox_replay", "outbox_lane", "outbox_relay")


class SqlWorld:
    """A database of its own, used for one round after the other."""

    lease = 1.0

    def __init__(self, url: str) -> None:
        if url.startswith("mysql"):
            url += "?ssl_disabled=true"  # a round opens many connections, and PyMySQL's TLS takes 30 ms of CPU for each
        self.url = url
        # Looks whether its connection was cut. A new one each time would cost more than the rounds (TLS).
        self.engine: Engine = create_engine(url, pool_pre_ping=True)
        self._writers: Engine = relay_engine(url, pool_size=8)
        install(self.engine, ["outbox", "inbox"])
        self._name = self.engine.url.database
        self._relay_engines: list[Engine] = []
        with self.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE aggregate (name VARCHAR(20) PRIMARY KEY, version INT NOT NULL)")
            for name in AGGREGATES:
                connection.exec_driver_sql(f"INSERT INTO aggregate VALUES ('{name}', 0)")
            connection.exec_driver_sql(
                "CREATE TABLE effect (consumer VARCHAR(60), event_id VARCHAR(36), at_offset INT)"
            )

    @property
    def is_postgres(self) -> bool:
        return self.engine.dialect.name == "postgresql"

    def empty(self) -> None:
        """As after ``install``; events stay, so that ids go on."""
        for engine in self._relay_engines:
            engine.dispose()
        self._relay_engines.clear()
        with self.engine.begin() as connection:
            for table in (*_EMPTIED, "inbox_event", "effect", "outbox_event"):
                connection.exec_driver_sql(f"DELETE FROM {table}")
            connection.exec_driver_sql(
                "UPDATE outbox_partition SET owner = '', leased_until = '1970-01-01 00:00:00', low_id = 0,"
                " handed_to = 0, careful_to = 0, crashes = 0"
            )

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        with self._writers.begin() as connection:
            yield _SqlWriting(connection)

    def store(self, relay_id: str, lease: float) -> OrderedStore:
        self._relay_engines.append(relay_engine(self.url, pool_size=3))
        return PartitionStore(self._relay_engines[-1], relay_id=relay_id, lease=lease)

    def cut(self) -> int:
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if self.is_postgres:
                sql = (
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                return int(connection.exec_driver_sql(sql).scalar_one())
            own = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
            rows = connection.exec_driver_sql(
                f"SELECT id FROM information_schema.processlist WHERE db = '{self._name}' AND id <> {own}"
            ).all()
            return sum([_killed(connection, number) for (number,) in rows])

    def replay_dead(self) -> int:
        with self.engine.begin() as connection:
            dead = connection.exec_driver_sql(
                "SELECT DISTINCT e.event_id FROM outbox_parked p JOIN outbox_event e ON e.id = p.id"
                " WHERE p.state = 'DEAD'"
            ).all()
            return replay(connection, [row[0] for row in dead], by="test", reason="test") if dead else 0

    def rows(self) -> Rows:
        with self.engine.begin() as connection:

            def all_of(sql: str) -> Sequence[Any]:
                return connection.exec_driver_sql(sql).all()

            parked = all_of("SELECT id, dest, state, error FROM outbox_parked")
            receipts = all_of("SELECT id, dest, relay, broker_partition, broker_offset FROM outbox_receipt")
            holds = all_of("SELECT partition_no, lane, target, mode FROM outbox_lane")
            return Rows(
                dict(_messages(row) for row in all_of(_EVENTS)),
                {(row[0], row[1]) for row in all_of("SELECT id, dest FROM outbox_ready")},
                {(row[0], row[1]): row[2] for row in parked},
                {(row[0], row[1]): row[3] for row in parked},
                {(row[0], row[1]): Receipt(*row[2:]) for row in receipts},
                {Stream(*row[:3]): row[3] for row in holds},
            )

    def close(self) -> None:
        for engine in (self.engine, self._writers, *self._relay_engines):
            engine.dispose()


class _SqlWriting:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def lock(self, keys: Sequence[str]) -> None:
        for key in sorted(keys):
            self._connection.exec_driver_sql(f"UPDATE aggregate SET version = version + 1 WHERE name = '{key}'")

    def add(self, messages: Sequence[Message], more: Sequence[Destination]) -> None:
        write.insert(self._connection, [write.row_of(message, more) for message in messages])


def _killed(connection: Connection, number: int) -> bool:
    try:
        connection.exec_driver_sql(f"KILL {number:d}")
    except Exception as error:
        if "1094" not in str(error):  # gone already
            raise
        return False
    return True


_EVENTS = "SELECT id, event_id, event_key, occurred_at, payload, destination, more_destinations FROM outbox_event"


def _messages(row: Any) -> tuple[int, Sequence[Message]]:
    import json

    number, event_id, key, at, payload, destination, more = row
    first = Message(event_id, "t", 1, None, None, key, at, None, "text/plain", bytes(payload), destination, None)
    return number, [first, *(first._replace(destination=name) for name, _ in json.loads(more or "[]"))]


def new_id() -> str:
    """An event id."""
    return str(uuid.uuid4())
