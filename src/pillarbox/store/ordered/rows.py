"""Columns of work rows ``r`` with their events ``e``, and what a driver's row means: a way for each kind of server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection

from ...ports import Delivery, WorkKey
from .. import messages
from ..found import INLINE, Found, Row, row_of
from ..packed import SEPARATOR, message_of, packed, part_count
from ..raw import fetch

_WORK = "r.partition_no, r.id, r.dest, r.lane, r.attempts, r.claims"
_WORK_COLUMNS = 6


class Rows(Protocol):
    """How work rows and their events are read."""

    def read(self, connection: Connection, source: str, parameters: tuple[Any, ...], bare: Collection[int]) -> Found:
        """Run the query ``SELECT (columns) FROM source``, where ``r`` is the work row and ``e`` its event, if there.

        ``bare`` lanes come without payload, as if it were empty.
        """
        ...


class PlainRows:
    """PostgreSQL and SQLite: a column for each thing; their drivers take rows apart in C."""

    def __init__(self, dialect: str) -> None:
        self._length = {"postgresql": "octet_length", "sqlite": "length"}[dialect]
        self._nothing = {"postgresql": "''::bytea", "sqlite": "X''"}[dialect]

    def read(self, connection: Connection, source: str, parameters: tuple[Any, ...], bare: Collection[int]) -> Found:
        """See Rows.read."""
        length = f"{self._length}(e.payload)"
        size = f"CASE WHEN {length} > {INLINE} THEN {length} END"  # of what is left out
        payload = f"CASE WHEN {length} <= {INLINE} THEN e.payload END"
        if bare:
            held = f"r.lane IN ({','.join(str(int(lane)) for lane in bare)})"
            size = f"CASE WHEN NOT {held} THEN {size} END"
            payload = f"CASE WHEN {held} THEN {self._nothing} ELSE {payload} END"
        sql = f"SELECT {_WORK}, {size}, {messages.event_columns('e', payload)} FROM {source}"
        with messages.binary(connection):
            rows = fetch(connection, sql, parameters)
        return _found(_plain(row) for row in rows)


def _plain(row: Sequence[Any]) -> tuple[Row, int]:
    partition_no, number, dest, lane, attempts, claims, size, *event = row
    message = None if event[0] is None else messages.message_of(event, dest)
    if size is None:
        size = 0 if message is None else len(message.payload)
    key = tuple.__new__(WorkKey, (partition_no, number, dest))
    return tuple.__new__(Delivery, (key, lane, attempts, claims, message)), size


class PackedRows:
    """MySQL and MariaDB: one column for each row."""

    def read(self, connection: Connection, source: str, parameters: tuple[Any, ...], bare: Collection[int]) -> Found:
        """See Rows.read."""
        held = f"r.lane IN ({','.join(str(int(lane)) for lane in bare)})" if bare else ""
        column = packed(_WORK, INLINE, held)
        rows = fetch(connection, f"SELECT STRAIGHT_JOIN {column} FROM {source}", parameters)
        try:
            return _found(_unpacked(row) for (row,) in rows)
        except AttributeError:  # a NULL: some event is larger than max_allowed_packet as one column
            return _found(self._one_by_one(connection, source, parameters, bare))

    def _one_by_one(
        self, connection: Connection, source: str, parameters: tuple[Any, ...], bare: Collection[int]
    ) -> Iterator[tuple[Row, int]]:
        for row in fetch(connection, f"SELECT STRAIGHT_JOIN {_WORK} FROM {source}", parameters):
            key, (lane, attempts, claims) = WorkKey(*row[:3]), row[3:]
            size, message = messages.one(connection, key)
            if message is not None and lane in bare:
                size, message = 0, message._replace(payload=b"")
            yield row_of(key, lane, attempts, claims, message), size


def _unpacked(row: bytes) -> tuple[Row, int]:
    parts = row.split(SEPARATOR, _PARTS - 1)
    number, event, dest, lane, attempts, claims = parts[:_WORK_COLUMNS]
    place = 0 if dest == _ZERO else int(dest)
    size, message = message_of(parts[_WORK_COLUMNS:], place) if len(parts) == _PARTS else (0, None)
    key = tuple.__new__(WorkKey, (int(number), int(event), place))
    # Nearly always 0, and comparing is quicker than int().
    failed, taken = 0 if attempts == _ZERO else int(attempts), 0 if claims == _ZERO else int(claims)
    return tuple.__new__(Delivery, (key, int(lane), failed, taken, message)), size


_PARTS = part_count(_WORK_COLUMNS)
_ZERO = b"0"


def _found(pairs: Iterable[tuple[Row, int]]) -> Found:
    rows: list[Row] = []
    sizes: list[int] = []
    for row, size in pairs:
        rows.append(row)
        sizes.append(size)
    whole = all(row[4] is not None and row[4].payload is not None for row in rows)
    return Found(rows, sizes, whole)


def rows_of(dialect: str) -> Rows:
    """The way for SQLAlchemy's dialect name."""
    return PackedRows() if dialect in {"mysql", "mariadb"} else PlainRows(dialect)
