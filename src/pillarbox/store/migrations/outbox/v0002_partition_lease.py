"""Partitions, lanes and relays: what a relay that keeps order owns and remembers.

Every statement can be run again: MySQL commits each one by itself, so a killed `init` leaves some of them done. New
tables come first: to change an old one, the server waits for the transactions that use it.
"""

from __future__ import annotations

from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Text,
    text,
)
from sqlalchemy.dialects import mysql, postgresql

from pillarbox.store.catalog import checks, columns, indexes

revision = "0002"
down_revision = "0001"

_moment = (
    DateTime()
    .with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    .with_variant(postgresql.TIMESTAMP(timezone=True, precision=6), "postgresql")
)
_long_text = Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")

_INNODB = {
    "mysql_engine": "InnoDB",
    "mariadb_engine": "InnoDB",
    "mysql_row_format": "DYNAMIC",
    "mariadb_row_format": "DYNAMIC",
}
# PostgreSQL. A partition's row changes with every settlement: room for HOT updates, and vacuum by count, as for the
# ready table. Parked rows come and go in bulk and move between states, which are indexed: no update of them is HOT, so
# room would only be lost, but a table of mostly DEAD rows must still be vacuumed by count.
_SETTINGS = (
    "ALTER TABLE outbox_partition SET (fillfactor = 70, autovacuum_vacuum_threshold = 1000, "
    "autovacuum_vacuum_scale_factor = 0, autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0, "
    "vacuum_truncate = off)",
    "ALTER TABLE outbox_parked SET (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0, "
    "autovacuum_analyze_threshold = 5000, autovacuum_analyze_scale_factor = 0, vacuum_truncate = off)",
)
_DIGITS = "(" + " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(16)) + ")"


_PARTITIONS = "SELECT partitions FROM outbox_meta WHERE one = 1"
_CHECK = "outbox_ready_partition"


def _text(length: int) -> String:
    bytewise = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(bytewise, "mysql", "mariadb")


def _ascii(length: int) -> String:
    bytewise = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return String(length).with_variant(bytewise, "mysql", "mariadb")


def upgrade(op: Operations) -> None:
    _partition(op)
    _lane(op)
    _lane_index(op)
    _relay(op)
    _add_column(op, "outbox_parked", Column("claims", SmallInteger, nullable=False, server_default="0"))
    _add_column(op, "outbox_parked", Column("target", BigInteger, nullable=False, server_default="0"))
    _add_column(op, "outbox_meta", Column("lease", _ascii(9), nullable=False, server_default="row"))
    if op.get_context().dialect.name == "postgresql":
        for statement in _SETTINGS:
            op.execute(statement)
    op.execute(
        "INSERT INTO outbox_partition (partition_no) SELECT n.number FROM"
        f" (SELECT 256 * a.d + 16 * b.d + c.d AS number FROM {_DIGITS} a, {_DIGITS} b, {_DIGITS} c) n, outbox_meta m"
        " WHERE n.number < m.partitions"
        " AND NOT EXISTS (SELECT 1 FROM outbox_partition p WHERE p.partition_no = n.number)"
    )
    _check_partition(op)
    op.execute("UPDATE outbox_meta SET schema_version = 2 WHERE one = 1")


def downgrade(op: Operations) -> None:
    """Back to what a row lease of the first schema knows: held events may go at once, buried ones are dead again."""
    if _has_check(op):
        kind = "CHECK" if op.get_context().dialect.name == "mysql" and not _is_mariadb(op) else "CONSTRAINT"
        op.execute(f"ALTER TABLE outbox_ready DROP {kind} {_CHECK}")
    op.execute("UPDATE outbox_meta SET schema_version = 1 WHERE one = 1")
    # By state, which is indexed; error_at is when it was set aside, so that a HELD one is due at once.
    op.execute("UPDATE outbox_parked SET state = 'RETRY', due_at = error_at WHERE state = 'HELD'")
    op.execute("UPDATE outbox_parked SET state = 'RETRY' WHERE state = 'SCHEDULED'")
    op.execute("UPDATE outbox_parked SET state = 'DEAD' WHERE state = 'BURIED'")
    for table in ("outbox_relay", "outbox_lane", "outbox_partition"):
        op.drop_table(table, if_exists=True)
    _drop_column(op, "outbox_parked", "claims")
    _drop_column(op, "outbox_parked", "target")
    _drop_column(op, "outbox_meta", "lease")


def _partition(op: Operations) -> None:
    op.create_table(
        "outbox_partition",
        Column("partition_no", SmallInteger, nullable=False, autoincrement=False),
        Column("owner", _ascii(64), nullable=False, server_default=""),
        Column("token", BigInteger, nullable=False, server_default="0"),
        Column("nonce", BigInteger, nullable=False, server_default="0"),
        Column("leased_until", _moment, nullable=False, server_default="1970-01-01 00:00:00"),
        Column("lease_ms", Integer, nullable=False, server_default="0"),
        Column("low_id", BigInteger, nullable=False, server_default="0"),
        Column("handed_to", BigInteger, nullable=False, server_default="0"),
        Column("careful_to", BigInteger, nullable=False, server_default="0"),
        Column("crashes", SmallInteger, nullable=False, server_default="0"),
        PrimaryKeyConstraint("partition_no"),
        if_not_exists=True,
        **_INNODB,
    )


def _lane(op: Operations) -> None:
    op.create_table(
        "outbox_lane",
        Column("partition_no", SmallInteger, nullable=False, autoincrement=False),
        Column("lane", BigInteger, nullable=False, autoincrement=False),
        Column("target", BigInteger, nullable=False, autoincrement=False),
        Column("mode", _ascii(9), nullable=False),
        Column("head_id", BigInteger, nullable=False),
        Column("due_at", _moment, nullable=True),
        Column("since", _moment, nullable=False),
        Column("destination", _text(255), nullable=False),
        Column("reason", _long_text, nullable=False),
        PrimaryKeyConstraint("partition_no", "lane", "target"),
        sqlite_with_rowid=False,
        if_not_exists=True,
        **_INNODB,
    )


def _relay(op: Operations) -> None:
    op.create_table(
        "outbox_relay",
        Column("relay_id", _ascii(64), nullable=False),
        Column("seen_until", _moment, nullable=False),
        Column("lease", _ascii(9), nullable=False),
        Column("version", _ascii(32), nullable=False),
        Column("host", _text(255), nullable=False),
        Column("started_at", _moment, nullable=False),
        PrimaryKeyConstraint("relay_id"),
        sqlite_with_rowid=False,
        if_not_exists=True,
        **_INNODB,
    )


def _check_partition(op: Operations) -> None:
    """A writer with another number of partitions, or another hash, is refused by the server: its events would never be
    found, or overtake each other. SQLite cannot add a constraint, and MySQL 5.7 reads over it: `status` counts them.

    The last change, since it waits for the transactions of writers, and they for it.
    """
    dialect = op.get_context().dialect.name
    if dialect == "sqlite" or _has_check(op):
        return
    partitions = 16 if op.get_context().as_sql else op.get_bind().execute(text(_PARTITIONS)).scalar_one()
    wrong = f"lane >= 0 AND partition_no <> MOD(lane, {partitions})"
    op.execute(f"UPDATE outbox_ready SET partition_no = MOD(lane, {partitions}) WHERE {wrong}")
    right = f"lane >= 0 AND partition_no = MOD(lane, {partitions})"
    op.execute(f"ALTER TABLE outbox_ready ADD CONSTRAINT {_CHECK} CHECK ({right})")


def _has_check(op: Operations) -> bool:
    if op.get_context().as_sql or op.get_context().dialect.name == "sqlite":
        return False
    return _CHECK in checks(op.get_bind(), "outbox_ready")


def _is_mariadb(op: Operations) -> bool:
    return bool(getattr(op.get_context().dialect, "is_mariadb", False))


def _add_column(op: Operations, table: str, column: Column[object]) -> None:
    """Only MariaDB has ADD COLUMN IF NOT EXISTS on every version."""
    if op.get_context().as_sql or column.name not in _columns(op, table):
        op.add_column(table, column)


def _drop_column(op: Operations, table: str, name: str) -> None:
    if op.get_context().as_sql or name in _columns(op, table):
        op.drop_column(table, name)


def _columns(op: Operations, table: str) -> set[str]:
    return columns(op.get_bind(), table)


def _lane_index(op: Operations) -> None:
    """MySQL has no CREATE INDEX IF NOT EXISTS."""
    name, table = "outbox_lane_mode", "outbox_lane"
    if op.get_context().as_sql or name not in indexes(op.get_bind(), table):
        op.create_index(name, table, ["mode", "partition_no"], postgresql_where=text("mode = 'drain'"))
