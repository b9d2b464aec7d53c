"""The first inbox: what each consumer has applied."""

from __future__ import annotations

from alembic.operations import Operations
from sqlalchemy import Column, DateTime, PrimaryKeyConstraint, String
from sqlalchemy.dialects import mysql, postgresql

revision = "0001"
down_revision = None

_moment = (
    DateTime()
    .with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    .with_variant(postgresql.TIMESTAMP(timezone=True, precision=6), "postgresql")
)
_name = String(100).with_variant(mysql.VARCHAR(100, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def upgrade(op: Operations) -> None:
    op.create_table(
        "inbox_event",
        Column("consumer", _name, nullable=False),
        Column("event_id", _name, nullable=False),
        Column("applied_at", _moment, nullable=False),
        PrimaryKeyConstraint("consumer", "event_id"),
        sqlite_with_rowid=False,
        if_not_exists=True,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
        mysql_row_format="DYNAMIC",
        mariadb_row_format="DYNAMIC",
    )
