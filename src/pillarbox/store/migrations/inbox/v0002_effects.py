"""Effects outside the database: what was begun, what became of it, and what people decided about it."""

from __future__ import annotations

from alembic.operations import Operations
from sqlalchemy import BigInteger, Column, DateTime, Integer, PrimaryKeyConstraint, String, Text
from sqlalchemy.dialects import mysql, postgresql, sqlite

from pillarbox.store.catalog import indexes

revision = "0002"
down_revision = "0001"

_moment = (
    DateTime()
    .with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    .with_variant(postgresql.TIMESTAMP(timezone=True, precision=6), "postgresql")
)
_long_text = Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
_number = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
_INNODB = {
    "mysql_engine": "InnoDB",
    "mariadb_engine": "InnoDB",
    "mysql_row_format": "DYNAMIC",
    "mariadb_row_format": "DYNAMIC",
}


def _text(length: int, charset: str = "utf8mb4") -> String:
    collation = "utf8mb4_bin" if charset == "utf8mb4" else "ascii_bin"
    bytewise = mysql.VARCHAR(length, charset=charset, collation=collation)
    return String(length).with_variant(bytewise, "mysql", "mariadb")


def upgrade(op: Operations) -> None:
    op.create_table(
        "inbox_effect",
        Column("effect_id", _text(36, "ascii"), nullable=False),
        Column("consumer", _text(100), nullable=False),
        Column("event_id", _text(100), nullable=False),
        Column("step", _text(100), nullable=False),
        Column("state", _text(9, "ascii"), nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("claim", _text(32, "ascii"), nullable=False),
        Column("started_at", _moment, nullable=False),
        Column("settled_at", _moment, nullable=True),
        Column("answer", _long_text, nullable=True),
        Column("refusal", _long_text, nullable=True),
        Column("error", _long_text, nullable=True),
        PrimaryKeyConstraint("effect_id"),
        if_not_exists=True,
        **_INNODB,
    )
    _index(op, "inbox_effect_state", "inbox_effect", ["state", "started_at"])
    op.create_table(
        "inbox_resolution",
        Column("seq", _number, nullable=False, autoincrement=True),
        Column("effect_id", _text(36, "ascii"), nullable=False),
        Column("resolved_at", _moment, nullable=False),
        Column("resolved_by", _text(255), nullable=False),
        Column("reason", _long_text, nullable=False),
        Column("was", _text(9, "ascii"), nullable=False),
        Column("verdict", _text(9, "ascii"), nullable=False),
        Column("error", _long_text, nullable=True),
        PrimaryKeyConstraint("seq"),
        if_not_exists=True,
        **_INNODB,
    )
    _index(op, "inbox_resolution_effect", "inbox_resolution", ["effect_id"])


def downgrade(op: Operations) -> None:
    """What was answered is forgotten; `init --downgrade` refuses while anything is in doubt."""
    op.drop_table("inbox_resolution", if_exists=True)
    op.drop_table("inbox_effect", if_exists=True)


def _index(op: Operations, name: str, table: str, columns: list[str]) -> None:
    """MySQL knows no IF NOT EXISTS for an index, and a killed `init` may have left this one."""
    if op.get_context().as_sql or name not in indexes(op.get_bind(), table):
        op.create_index(name, table, columns)
