"""Writing events: the statements of one ``add``, and nothing else. No guard, no encoding, no commit.

==========  ==========================  =====================================================
server      one event                   many events
==========  ==========================  =====================================================
PostgreSQL  1 statement                 1 statement
MySQL       2 inserts                   3 for each MiB: insert, read the ids, insert
SQLite      2 inserts                   3: insert, read the ids (500 at a time), insert
==========  ==========================  =====================================================

MySQL reads the ids by event id with a plain SELECT, which sees the transaction's own rows and locks nothing:
``INSERT … SELECT`` under the caller's REPEATABLE READ would take next-key locks. Consecutive ids are not assumed
(``auto_increment_increment``, Galera). Row ids follow the order of the list on every server.

An event that goes later is written to the parked table instead, in as many statements (:mod:`.writers.scheduled`).

The statements go through a small :class:`Executor`, so that a cursor other than SQLAlchemy's can run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Final

from sqlalchemy import Connection

from .naming import PLAIN, Naming
from .writers import Executor, Row, Write, as_text, naive, row_of, scheduled
from .writers.mysql import write_mysql
from .writers.postgres import write_postgresql
from .writers.sqlite import write_sqlite

__all__ = ["Executor", "OverCore", "Row", "insert", "insert_with", "is_past", "row_of", "standing", "styled"]

WRITERS: Final[dict[str, Write]] = {
    "postgresql": write_postgresql,
    "mysql": write_mysql,
    "mariadb": write_mysql,
    "sqlite": write_sqlite,
}


def is_past(execute: Executor, dialect_name: str, due: datetime) -> bool:
    """Whether the database's clock has passed ``due`` (UTC)."""
    shown = {"postgresql": due, "sqlite": as_text(due)}.get(dialect_name, naive(due))
    return bool(execute.returned(scheduled.PAST[dialect_name], (shown,))[0][0])


def insert(connection: Connection, rows: Sequence[Row]) -> list[int]:
    """Insert events and their deliveries in the connection's transaction; returns their row ids in order."""
    return insert_with(OverCore(connection), connection.dialect.name, rows)


def insert_with(execute: Executor, dialect_name: str, rows: Sequence[Row]) -> list[int]:
    """The same through any executor."""
    return WRITERS[dialect_name](execute, rows) if rows else []


def standing(execute: Executor, event_ids: Sequence[str]) -> list[str]:
    """Those of the ids that are in the table, in order."""
    found: set[str] = set()
    for start in range(0, len(event_ids), 500):
        part = event_ids[start : start + 500]
        sql = f"SELECT event_id FROM outbox_event WHERE event_id IN ({', '.join('?' * len(part))})"
        found.update(one[0] for one in execute.returned(sql, part))
    return [event_id for event_id in event_ids if event_id in found]


class OverCore:
    """SQLAlchemy's connection as an executor. Statements pass as driver SQL: nothing is compiled per call.

    ``naming`` puts the outbox's prefix in; the connection is the application's, where no listener does.
    """

    __slots__ = ("_connection", "_naming", "_style", "bytes_as_hex", "statements")

    def __init__(self, connection: Connection, naming: Naming = PLAIN) -> None:
        self._connection = connection
        self._naming = naming
        self.statements = 0
        """How many have succeeded: after a failure, whether part of the write stands in the transaction."""
        self._style = connection.dialect.paramstyle
        self.bytes_as_hex = connection.dialect.driver == "aiomysql"

    def inserted(self, sql: str, parameters: Sequence[object]) -> int:
        result = self._connection.exec_driver_sql(said(sql, self._style, self._naming), tuple(parameters))
        self.statements += 1
        return result.lastrowid or 0

    def insert_each(self, sql: str, parameters: Sequence[Sequence[object]]) -> None:
        self._connection.exec_driver_sql(said(sql, self._style, self._naming), [tuple(one) for one in parameters])
        self.statements += 1

    def returned(self, sql: str, parameters: Sequence[object]) -> Sequence[Sequence[Any]]:
        return self._connection.exec_driver_sql(said(sql, self._style, self._naming), tuple(parameters)).all()


_KEPT: Final = 4_096
"""Longer statements, of many events at once, are made anew each time."""


def said(sql: str, paramstyle: str, naming: Naming) -> str:
    """The statement as the driver gets it; made once for each text."""
    return _said(sql, paramstyle, naming.prefix) if len(sql) <= _KEPT else styled(naming(sql), paramstyle)


@lru_cache(maxsize=1_024)
def _said(sql: str, paramstyle: str, prefix: str) -> str:
    return styled(Naming(prefix)(sql), paramstyle)


def styled(sql: str, paramstyle: str) -> str:
    """The statement with the driver's own marks in place of ``?``."""
    if paramstyle in ("format", "pyformat"):
        return sql.replace("%", "%%").replace("?", "%s")
    return sql if paramstyle == "qmark" else _numbered(sql)


@cache
def _numbered(sql: str) -> str:
    head, *tail = sql.split("?")
    return head + "".join(f"${place}{part}" for place, part in enumerate(tail, start=1))
