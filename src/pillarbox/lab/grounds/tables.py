"""The lab's own tables, small enough to be read at a glance: an alarm at the shop, a notification with the consumers.

The moments are the database's, with microseconds where the server has them (SQLite: milliseconds).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, DateTime, Index, MetaData, String, Table, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import DefaultClause

shop_tables: Final = MetaData()
consumer_tables: Final = MetaData()

_id = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
# TIMESTAMP on MySQL: it is kept in UTC whatever the time zone of the session that lets the server fill it in.
_moment = (
    DateTime()
    .with_variant(mysql.TIMESTAMP(fsp=6), "mysql", "mariadb")
    .with_variant(postgresql.TIMESTAMP(timezone=True, precision=6), "postgresql")
)
_NOW: Final = {
    "postgresql": "clock_timestamp()",
    "mysql": "CURRENT_TIMESTAMP(6)",
    "mariadb": "CURRENT_TIMESTAMP(6)",
    "sqlite": "(strftime('%Y-%m-%d %H:%M:%f', 'now'))",
}

lab_alarm = Table(
    "lab_alarm",
    shop_tables,
    Column("event_id", String(36), primary_key=True),
    Column("device", String(64), nullable=False),
    Column("raised_at", _moment, nullable=False),  # filled in by the server
)

lab_notification = Table(
    "lab_notification",
    consumer_tables,
    Column("id", _id, primary_key=True, autoincrement=True),
    Column("consumer", String(100), nullable=False),
    Column("event_id", String(36), nullable=False),  # not unique: doing it twice must show
    Column("made_at", _moment, nullable=False),  # filled in by the server
    Index("lab_notification_event", "event_id"),
)


def tables_for(metadata: MetaData, dialect: str) -> MetaData:
    """The same tables with moments that this server fills in itself."""
    fitted = MetaData()
    for table in metadata.tables.values():
        copy = table.to_metadata(fitted)
        for name in ("raised_at", "made_at"):
            if name in copy.c:
                copy.c[name].server_default = DefaultClause(text(_NOW[dialect].replace(":", "\\:")))
    return fitted
