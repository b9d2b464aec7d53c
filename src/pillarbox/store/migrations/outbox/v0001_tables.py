"""The first outbox: event, ready, parked, receipt, replay, meta.

Every statement can be run again: MySQL commits each one by itself, so a killed `init` leaves some of them done.
"""

from __future__ import annotations

from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from pillarbox.store.catalog import indexes

revision = "0001"
down_revision = None

_id = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
_moment = (
    DateTime()
    .with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    .with_variant(postgresql.TIMESTAMP(timezone=True, precision=6), "postgresql")
)
_blob = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_long_text = Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")

_INNODB = {
    "mysql_engine": "InnoDB",
    "mariadb_engine": "InnoDB",
    "mysql_row_format": "DYNAMIC",
    "mariadb_row_format": "DYNAMIC",
}
# The hot table on PostgreSQL: room in the page for HOT updates, vacuum by count and not by share of the table, and no
# truncation, whose exclusive lock would stop the writers.
_HOT = (
    "ALTER TABLE outbox_ready SET (fillfactor = 70, autovacuum_vacuum_threshold = 5000, "
    "autovacuum_vacuum_scale_factor = 0, autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0, "
    "vacuum_truncate = off)"
)


def _text(length: int) -> String:
    bytewise = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(bytewise, "mysql", "mariadb")


def _ascii(length: int) -> String:
    bytewise = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return String(length).with_variant(bytewise, "mysql", "mariadb")


def upgrade(op: Operations) -> None:
    _event(op)
    _ready(op)
    _parked(op)
    _receipt(op)
    _replay(op)
    _meta(op)


def _event(op: Operations) -> None:
    op.create_table(
        "outbox_event",
        Column("id", _id, nullable=False, autoincrement=True),
        Column("event_id", _ascii(36), nullable=False),
        Column("event_type", _text(255), nullable=False),
        Column("schema_version", Integer, nullable=False),
        Column("aggregate_type", _text(255), nullable=True),
        Column("aggregate_id", _text(255), nullable=True),
        Column("event_key", _text(255), nullable=True),
        Column("destination", _text(255), nullable=False),
        Column("routing_key", _text(255), nullable=True),
        Column("more_destinations", _long_text, nullable=True),
        Column("headers", _long_text, nullable=True),
        Column("content_type", _text(255), nullable=False),
        Column("payload", _blob, nullable=False),
        Column("occurred_at", _moment, nullable=False),
        Column("recorded_at", _moment, nullable=False),
        PrimaryKeyConstraint("id"),
        UniqueConstraint("event_id", name="outbox_event_event_id"),
        sqlite_autoincrement=True,
        if_not_exists=True,
        **_INNODB,
    )


def _ready(op: Operations) -> None:
    op.create_table(
        "outbox_ready",
        Column("partition_no", SmallInteger, nullable=False, autoincrement=False),
        Column("id", _id, nullable=False, autoincrement=False),
        Column("dest", SmallInteger, nullable=False, autoincrement=False),
        Column("lane", BigInteger, nullable=False),
        Column("leased_until", _moment, nullable=False, server_default="1970-01-01 00:00:00"),
        Column("owner", _ascii(64), nullable=False, server_default=""),
        Column("token", BigInteger, nullable=False, server_default="0"),
        Column("claims", SmallInteger, nullable=False, server_default="0"),
        Column("attempts", SmallInteger, nullable=False, server_default="0"),
        PrimaryKeyConstraint("partition_no", "id", "dest"),
        sqlite_with_rowid=False,
        if_not_exists=True,
        **_INNODB,
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute(_HOT)


def _parked(op: Operations) -> None:
    op.create_table(
        "outbox_parked",
        Column("partition_no", SmallInteger, nullable=False, autoincrement=False),
        Column("lane", BigInteger, nullable=False, autoincrement=False),
        Column("id", _id, nullable=False, autoincrement=False),
        Column("dest", SmallInteger, nullable=False, autoincrement=False),
        Column("state", _ascii(9), nullable=False),
        Column("due_at", _moment, nullable=True),
        Column("attempts", SmallInteger, nullable=False),
        Column("error", _long_text, nullable=False),
        Column("error_at", _moment, nullable=False),
        PrimaryKeyConstraint("partition_no", "lane", "id", "dest"),
        sqlite_with_rowid=False,
        if_not_exists=True,
        **_INNODB,
    )
    _index(op, "outbox_parked_due", "outbox_parked", "state", "due_at", "partition_no", "id")
    _index(op, "outbox_parked_state", "outbox_parked", "state", "id")


def _receipt(op: Operations) -> None:
    op.create_table(
        "outbox_receipt",
        Column("id", _id, nullable=False, autoincrement=False),
        Column("dest", SmallInteger, nullable=False, autoincrement=False),
        Column("sent_at", _moment, nullable=False),
        Column("relay", _ascii(64), nullable=False),
        Column("token", BigInteger, nullable=False),
        Column("broker_partition", Integer, nullable=True),
        Column("broker_offset", BigInteger, nullable=True),
        PrimaryKeyConstraint("id", "dest"),
        sqlite_with_rowid=False,
        if_not_exists=True,
        **_INNODB,
    )


def _replay(op: Operations) -> None:
    op.create_table(
        "outbox_replay",
        Column("seq", _id, nullable=False, autoincrement=True),
        Column("id", _id, nullable=False),
        Column("dest", SmallInteger, nullable=False),
        Column("replayed_at", _moment, nullable=False),
        Column("replayed_by", _text(255), nullable=False),
        Column("reason", _long_text, nullable=False),
        Column("attempts", SmallInteger, nullable=False),
        Column("error", _long_text, nullable=False),
        PrimaryKeyConstraint("seq"),
        if_not_exists=True,
        **_INNODB,
    )
    _index(op, "outbox_replay_event", "outbox_replay", "id", "dest")


def _meta(op: Operations) -> None:
    op.create_table(
        "outbox_meta",
        Column("one", SmallInteger, nullable=False, autoincrement=False),
        Column("schema_version", Integer, nullable=False),
        Column("partitions", SmallInteger, nullable=False),
        Column("hash_name", _ascii(32), nullable=False),
        Column("mode", _ascii(16), nullable=False),
        PrimaryKeyConstraint("one"),
        if_not_exists=True,
        **_INNODB,
    )
    op.execute(
        "INSERT INTO outbox_meta (one, schema_version, partitions, hash_name, mode) "
        "SELECT 1, 1, 16, 'sha256-60', 'polling' FROM (SELECT 1 AS one) AS row_of_one "
        "WHERE NOT EXISTS (SELECT 1 FROM outbox_meta)"
    )


def _index(op: Operations, name: str, table: str, *columns: str) -> None:
    """MySQL has no CREATE INDEX IF NOT EXISTS."""
    offline = op.get_context().as_sql
    if offline or name not in indexes(op.get_bind(), table):
        op.create_index(name, table, list(columns))
