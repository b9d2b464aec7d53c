"""Millions of events by the server itself: some sent long ago (history), the others committed and waiting.

On MySQL the filling session writes no binary log: a history of ten million events would fill the disk twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, create_engine, text

from bench.fill import AGGREGATES, ANALYZE
from pillarbox.policy.lanes import lane_of, partition_of

CHUNK = 200_000
TABLES = ("outbox_event", "outbox_ready", "outbox_receipt")
# Ids in text form that rise, as those of UUID version 7 do: an index of random ones would be the slowest part of it.
EVENT_ID = {
    "postgresql": "'0198f3a0-0000-7000-8000-' || lpad(to_hex({n}), 12, '0')",
    "mysql": "CONCAT('0198f3a0-0000-7000-8000-', LPAD(LOWER(HEX({n})), 12, '0'))",
    "sqlite": "printf('0198f3a0-0000-7000-8000-%012x', {n})",
}
PAYLOAD = {
    "postgresql": "convert_to('{{\"text\":\"' || repeat('x', {size}) || '\"}}', 'UTF8')",
    "mysql": "CONCAT('{{\"text\":\"', REPEAT('x', {size}), '\"}}')",
    "sqlite": "CAST('{{\"text\":\"' || replace(hex(zeroblob({size})), '00', 'x') || '\"}}' AS BLOB)",
}
NOW = {"postgresql": "clock_timestamp()", "mysql": "UTC_TIMESTAMP(6)", "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')"}


@dataclass(frozen=True, slots=True)
class Bulk:
    """``sent`` events with receipts, and ``pending`` ones behind them, for one destination.

    ``shown`` False leaves the work rows of the pending ones out, for :func:`show` to add them all at one moment.
    """

    sent: int
    pending: int
    destination: str
    payload_bytes: int = 300
    keys: int = AGGREGATES
    shown: bool = True


def bulk(url: str, wanted: Bulk) -> None:
    """Fill the tables, and have the server look at them."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            Filler(connection, wanted).fill()
    finally:
        engine.dispose()


def show(url: str) -> None:
    """All work rows that were left out appear in one commit."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(READY.format(where="WHERE p.first <= e.id", source=HIDDEN))
    finally:
        engine.dispose()


READY = (
    "INSERT INTO outbox_ready (partition_no, id, dest, lane) SELECT k.partition_no, e.id, 0, k.lane"
    " FROM {source} JOIN bench_key k ON k.name = e.event_key {where} ORDER BY e.id"
)
HIDDEN = "bench_pending p CROSS JOIN outbox_event e"


class Filler:
    """One connection, one transaction a chunk."""

    def __init__(self, connection: Connection, wanted: Bulk) -> None:
        self._connection = connection
        self._wanted = wanted
        self._dialect = "mysql" if connection.dialect.name in ("mysql", "mariadb") else connection.dialect.name

    def fill(self) -> None:
        """Keys, events, receipts or work rows, then statistics."""
        self._prepare()
        total = self._wanted.sent + self._wanted.pending
        for start in range(1, total + 1, CHUNK):
            self._chunk(start, min(start + CHUNK - 1, total))
        if self._dialect == "postgresql":
            self._do(f"SELECT setval(pg_get_serial_sequence('outbox_event', 'id'), {total + 1})")
        for table in TABLES:
            self._do(ANALYZE[self._connection.dialect.name].format(table))
        self._connection.commit()

    def _prepare(self) -> None:
        if self._dialect == "mysql":
            self._do("SET SESSION sql_log_bin = 0")
        self._do(
            "CREATE TABLE bench_key (n INTEGER PRIMARY KEY, name VARCHAR(255), lane BIGINT, partition_no SMALLINT)"
        )
        names = [f"order-{n:04d}" for n in range(self._wanted.keys)]
        keys = [
            {"n": n, "name": name, "lane": lane_of(name), "partition_no": partition_of(lane_of(name))}
            for n, name in enumerate(names)
        ]
        self._connection.execute(text("INSERT INTO bench_key VALUES (:n, :name, :lane, :partition_no)"), keys)
        self._do("CREATE TABLE bench_pending (first BIGINT)")
        self._do(f"INSERT INTO bench_pending VALUES ({self._wanted.sent + 1})")
        if self._dialect == "mysql":
            self._do("CREATE TABLE bench_number (n INTEGER PRIMARY KEY)")
            self._connection.execute(text("INSERT INTO bench_number VALUES (:n)"), [{"n": n} for n in range(1000)])
        self._connection.commit()

    def _chunk(self, first: int, last: int) -> None:
        event_id = EVENT_ID[self._dialect].format(n="g.n")
        payload = PAYLOAD[self._dialect].format(size=max(0, self._wanted.payload_bytes - 11))
        now = NOW[self._dialect]
        numbers = self._numbers(first, last)
        self._do(
            "INSERT INTO outbox_event (id, event_id, event_type, schema_version, aggregate_type, aggregate_id,"
            " event_key, destination, content_type, payload, occurred_at, recorded_at)"
            f" SELECT g.n, {event_id}, 'order.created', 1, 'order', k.name, k.name,"
            f" '{self._wanted.destination}', 'application/json', {payload}, {now}, {now}"
            f" FROM {numbers} JOIN bench_key k ON k.n = g.n % {self._wanted.keys} ORDER BY g.n"
        )
        sent_to = min(last, self._wanted.sent)
        if first <= sent_to:
            self._do(
                "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)"
                " SELECT id, 0, recorded_at, 'long ago', 1, 0, id FROM outbox_event"
                f" WHERE id BETWEEN {first} AND {sent_to}"
            )
        if last > sent_to and self._wanted.shown:
            self._do(
                READY.format(source="outbox_event e", where=f"WHERE e.id BETWEEN {max(first, sent_to + 1)} AND {last}")
            )
        self._connection.commit()

    def _numbers(self, first: int, last: int) -> str:
        match self._dialect:
            case "postgresql":
                return f"generate_series({first}, {last}) AS g(n)"
            case "sqlite":
                return (
                    f"(WITH RECURSIVE c(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM c WHERE n < {last})"
                    " SELECT n FROM c) AS g"
                )
            case _:
                return (
                    f"(SELECT {first} + a.n * 1000 + b.n AS n FROM bench_number a CROSS JOIN bench_number b"
                    f" WHERE a.n <= {(last - first) // 1000} AND {first} + a.n * 1000 + b.n <= {last}) AS g"
                )

    def _do(self, sql: str) -> None:
        self._connection.exec_driver_sql(sql.replace("%", "%%") if self._dialect != "sqlite" else sql)


def hold(url: str, destination: str, *, event_id: int = 1) -> None:
    """Make one sent event, of whatever key, a dead head behind which its key's later events wait."""
    name = "order-0000"
    lane, target = lane_of(name), lane_of(destination)
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            now = NOW["mysql" if connection.dialect.name == "mariadb" else connection.dialect.name]
            place = {"no": partition_of(lane), "lane": lane, "target": target, "id": event_id, "to": destination}
            connection.execute(text("DELETE FROM outbox_receipt WHERE id = :id"), place)
            connection.execute(
                text(
                    "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, attempts, target, error, error_at)"
                    f" VALUES (:no, :lane, :id, 0, 'DEAD', 1, :target, 'for the bench', {now})"
                ),
                place,
            )
            connection.execute(
                text(
                    "INSERT INTO outbox_lane (partition_no, lane, target, mode, head_id, since, destination, reason)"
                    f" VALUES (:no, :lane, :target, 'dead', :id, {now}, :to, 'for the bench')"
                ),
                place,
            )
    finally:
        engine.dispose()
