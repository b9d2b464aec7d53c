"""The tables, as SQLAlchemy Core knows them. One place for names, keys and types; migrations create exactly this.

* ``outbox_event``    one immutable row per event, append-only; what change data capture reads.
* ``outbox_ready``    one narrow row per event and destination that can go now: the hot table, no secondary index.
* ``outbox_parked``   what cannot go now: RETRY and SCHEDULED (later), HELD (behind another one), DEAD, BURIED.
* ``outbox_partition`` who owns each partition, under which token and nonce, and how far it is settled.
* ``outbox_lane``     holds: keys (or whole destinations) whose later events wait, and why.
* ``outbox_relay``    the relays that live.
* ``outbox_receipt``  what was sent, when, by whom, to which partition and offset. SENT is what a receipt says.
* ``outbox_replay``   one row per replay of a dead letter: who, when, why, and what had failed.
* ``outbox_meta``     one row: schema version, number of partitions, hash name, mode, and how relays own their work.
* ``inbox_event``     what each consumer has applied; may live in another database, like the next two.
* ``inbox_effect``    what a handler did outside the database: one row per event, consumer and step.
* ``inbox_resolution`` what people decided about effects in doubt: who, when, why.

No foreign key from ready to event: deleting parents would lock gaps of a nearly empty hot table.
Lock order everywhere: partition, lane, ready/parked by primary key, event, receipt.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.types import TypeEngine

SCHEMA_VERSION: Final = 2
VERSION_TABLE: Final = "outbox_alembic"
"""Alembic's own bookkeeping for these tables; users' Alembic keeps its own."""

INBOX_VERSION_TABLE: Final = "inbox_alembic"

NEVER: Final = "1970-01-01 00:00:00"
"""``leased_until`` of a row nobody holds: never NULL, so that new and expired rows are one predicate."""

# Row ids: SQLite only auto-numbers INTEGER. Text columns compare as bytes, so that `a` and `A` are two keys.
_id = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
_moment = (
    DateTime()
    .with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    .with_variant(postgresql.TIMESTAMP(timezone=True, precision=6), "postgresql")
)
_blob = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def _mysql_text(length: int, charset: str) -> mysql.VARCHAR:
    collation = "utf8mb4_bin" if charset == "utf8mb4" else "ascii_bin"
    return mysql.VARCHAR(length, charset=charset, collation=collation)


def _text(length: int) -> TypeEngine[str]:
    return String(length).with_variant(_mysql_text(length, "utf8mb4"), "mysql", "mariadb")


def _ascii(length: int) -> TypeEngine[str]:
    return String(length).with_variant(_mysql_text(length, "ascii"), "mysql", "mariadb")


_mysql_long_text = mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin")
_long_text = Text().with_variant(_mysql_long_text, "mysql", "mariadb")
_engine: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mariadb_engine": "InnoDB",
    "mysql_row_format": "DYNAMIC",
    "mariadb_row_format": "DYNAMIC",
}

SINCE: Final = "since"
_SINCE_2: Final = {SINCE: 2}  # columns that an older outbox lacks

outbox_metadata = MetaData()
inbox_metadata = MetaData()

outbox_event = Table(
    "outbox_event",
    outbox_metadata,
    Column("id", _id, primary_key=True, autoincrement=True),
    Column("event_id", _ascii(36), nullable=False),  # UUID in text form: readable, and CDC sends it as it is
    Column("event_type", _text(255), nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("aggregate_type", _text(255), nullable=True),
    Column("aggregate_id", _text(255), nullable=True),
    Column("event_key", _text(255), nullable=True),
    Column("destination", _text(255), nullable=False),
    Column("routing_key", _text(255), nullable=True),
    Column("more_destinations", _long_text, nullable=True),  # JSON [[name, routing key or null], …] for dest 1, 2, …
    Column("headers", _long_text, nullable=True),
    Column("content_type", _text(255), nullable=False),
    Column("payload", _blob, nullable=False),
    Column("occurred_at", _moment, nullable=False),  # the application's word
    Column("recorded_at", _moment, nullable=False),  # the database's clock at the insert
    UniqueConstraint("event_id", name="outbox_event_event_id"),
    sqlite_autoincrement=True,  # ids are never used again
    **_engine,
)

outbox_ready = Table(
    "outbox_ready",
    outbox_metadata,
    Column("partition_no", SmallInteger, primary_key=True, autoincrement=False),
    Column("id", _id, primary_key=True, autoincrement=False),
    Column("dest", SmallInteger, primary_key=True, autoincrement=False),
    Column("lane", BigInteger, nullable=False),
    Column("leased_until", _moment, nullable=False, server_default=NEVER),
    Column("owner", _ascii(64), nullable=False, server_default=""),
    Column("token", BigInteger, nullable=False, server_default="0"),
    Column("claims", SmallInteger, nullable=False, server_default="0"),
    Column("attempts", SmallInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
    **_engine,
)

outbox_parked = Table(
    "outbox_parked",
    outbox_metadata,
    Column("partition_no", SmallInteger, primary_key=True, autoincrement=False),
    Column("lane", BigInteger, primary_key=True, autoincrement=False),
    Column("id", _id, primary_key=True, autoincrement=False),
    Column("dest", SmallInteger, primary_key=True, autoincrement=False),
    Column("state", _ascii(9), nullable=False),
    Column("due_at", _moment, nullable=True),  # NULL for HELD, DEAD and BURIED
    Column("attempts", SmallInteger, nullable=False),
    Column("claims", SmallInteger, nullable=False, server_default="0", info=_SINCE_2),
    Column("target", BigInteger, nullable=False, server_default="0", info=_SINCE_2),  # destination, hashed like a lane
    Column("error", _long_text, nullable=False),
    Column("error_at", _moment, nullable=False),
    Index("outbox_parked_due", "state", "due_at", "partition_no", "id"),
    Index("outbox_parked_state", "state", "id"),
    sqlite_with_rowid=False,
    **_engine,
)

outbox_partition = Table(
    "outbox_partition",
    outbox_metadata,
    Column("partition_no", SmallInteger, primary_key=True, autoincrement=False),
    Column("owner", _ascii(64), nullable=False, server_default=""),
    Column("token", BigInteger, nullable=False, server_default="0"),  # +1 with each owner
    Column("nonce", BigInteger, nullable=False, server_default="0"),  # a token alone is no fence after a failover
    Column("leased_until", _moment, nullable=False, server_default=NEVER),
    Column("lease_ms", Integer, nullable=False, server_default="0"),  # an end further away than this is impossible
    Column("low_id", BigInteger, nullable=False, server_default="0"),  # nothing at or below it can become ready
    Column("handed_to", BigInteger, nullable=False, server_default="0"),  # ids up to here may be on their way; 0: none
    Column("careful_to", BigInteger, nullable=False, server_default="0"),  # ids up to here were on their way at a crash
    Column("crashes", SmallInteger, nullable=False, server_default="0"),
    **_engine,
)

outbox_lane = Table(
    "outbox_lane",
    outbox_metadata,
    Column("partition_no", SmallInteger, primary_key=True, autoincrement=False),
    Column("lane", BigInteger, primary_key=True, autoincrement=False),  # -1: every lane of the destination
    Column("target", BigInteger, primary_key=True, autoincrement=False),  # the destination, hashed like a lane
    Column("mode", _ascii(9), nullable=False),  # backoff, dead, away, drain
    Column("head_id", BigInteger, nullable=False),
    Column("due_at", _moment, nullable=True),  # NULL for dead
    Column("since", _moment, nullable=False),
    Column("destination", _text(255), nullable=False),
    Column("reason", _long_text, nullable=False),
    # To see each second what is to be drained, among any number. Partial, lest PostgreSQL take it for the primary key.
    Index("outbox_lane_mode", "mode", "partition_no", postgresql_where=text("mode = 'drain'")),
    sqlite_with_rowid=False,
    **_engine,
)

outbox_relay = Table(
    "outbox_relay",
    outbox_metadata,
    Column("relay_id", _ascii(64), primary_key=True),
    Column("seen_until", _moment, nullable=False),
    Column("lease", _ascii(9), nullable=False),  # row or partition
    Column("version", _ascii(32), nullable=False),
    Column("host", _text(255), nullable=False),
    Column("started_at", _moment, nullable=False),
    sqlite_with_rowid=False,
    **_engine,
)

outbox_receipt = Table(
    "outbox_receipt",
    outbox_metadata,
    Column("id", _id, primary_key=True, autoincrement=False),
    Column("dest", SmallInteger, primary_key=True, autoincrement=False),
    Column("sent_at", _moment, nullable=False),
    Column("relay", _ascii(64), nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("broker_partition", Integer, nullable=True),
    Column("broker_offset", BigInteger, nullable=True),
    sqlite_with_rowid=False,
    **_engine,
)

outbox_replay = Table(
    "outbox_replay",
    outbox_metadata,
    Column("seq", _id, primary_key=True, autoincrement=True),
    Column("id", _id, nullable=False),
    Column("dest", SmallInteger, nullable=False),
    Column("replayed_at", _moment, nullable=False),
    Column("replayed_by", _text(255), nullable=False),
    Column("reason", _long_text, nullable=False),
    Column("attempts", SmallInteger, nullable=False),
    Column("error", _long_text, nullable=False),
    Index("outbox_replay_event", "id", "dest"),
    **_engine,
)

outbox_meta = Table(
    "outbox_meta",
    outbox_metadata,
    Column("one", SmallInteger, primary_key=True, autoincrement=False),  # always 1
    Column("schema_version", Integer, nullable=False),
    Column("partitions", SmallInteger, nullable=False),
    Column("hash_name", _ascii(32), nullable=False),
    Column("mode", _ascii(16), nullable=False),  # polling; later: trigger, cdc
    Column("lease", _ascii(9), nullable=False, server_default="row", info=_SINCE_2),  # relays own: row or partition
    **_engine,
)

inbox_event = Table(
    "inbox_event",
    inbox_metadata,
    Column("consumer", _text(100), primary_key=True),
    Column("event_id", _text(100), primary_key=True),
    Column("applied_at", _moment, nullable=False),
    sqlite_with_rowid=False,
    **_engine,
)

inbox_effect = Table(
    "inbox_effect",
    inbox_metadata,
    Column("effect_id", _ascii(36), primary_key=True),  # the idempotency key
    Column("consumer", _text(100), nullable=False),
    Column("event_id", _text(100), nullable=False),
    Column("step", _text(100), nullable=False),
    Column("state", _ascii(9), nullable=False),  # started, done, unknown, not_done
    Column("attempts", Integer, nullable=False),
    Column("claim", _ascii(32), nullable=False),  # of the attempt: random
    Column("started_at", _moment, nullable=False),
    Column("settled_at", _moment, nullable=True),
    Column("answer", _long_text, nullable=True),  # JSON
    Column("refusal", _long_text, nullable=True),
    Column("error", _long_text, nullable=True),
    Index("inbox_effect_state", "state", "started_at"),
    **_engine,
)

inbox_resolution = Table(
    "inbox_resolution",
    inbox_metadata,
    Column("seq", _id, primary_key=True, autoincrement=True),
    Column("effect_id", _ascii(36), nullable=False),
    Column("resolved_at", _moment, nullable=False),
    Column("resolved_by", _text(255), nullable=False),
    Column("reason", _long_text, nullable=False),
    Column("was", _ascii(9), nullable=False),
    Column("verdict", _ascii(9), nullable=False),  # done, not_done, refused
    Column("error", _long_text, nullable=True),
    Index("inbox_resolution_effect", "effect_id"),
    **_engine,
)
