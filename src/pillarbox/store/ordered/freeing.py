"""Removing holds under which nothing is parked any more. The rows of the holds are locked already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from ...ports import EVERY_LANE, Stream
from ..raw import fetch, in_parts
from .statements import LANES, Statements

_STREAMS_PER_STATEMENT: Final = 100
_WAITING: Final = "p.state IN ('HELD', 'RETRY')"


def free(connection: Connection, statements: Statements, streams: Sequence[Stream]) -> list[Stream]:
    """Delete the holds of ``streams`` under which nothing waits; returns the others."""
    kept: list[Stream] = []
    for part in in_parts(streams, _STREAMS_PER_STATEMENT):
        held = {int(row[0]) for row in fetch(connection, " UNION ALL ".join(_look(connection, part)))}
        kept += [stream for number, stream in enumerate(part) if number in held]
        empty = [tuple(stream) for number, stream in enumerate(part) if number not in held]
        statements.delete(connection, LANES, empty)
    return kept


def _look(connection: Connection, streams: Sequence[Stream]) -> list[str]:
    """A SELECT for each stream that gives its number if something waits under it."""
    hint = " FORCE INDEX (PRIMARY)" if connection.dialect.name in {"mysql", "mariadb"} else ""
    return [
        f"SELECT {number} FROM (SELECT 1 AS one) x{number} WHERE EXISTS ({_waiting(stream, hint)})"
        for number, stream in enumerate(streams)
    ]


def _waiting(stream: Stream, hint: str) -> str:
    """Ranges of the primary key (partition_no, lane, id, dest); a whole destination is a range of its partition."""
    where = f"p.partition_no = {stream.partition_no:d} AND p.target = {stream.target:d} AND {_WAITING}"
    if stream.lane != EVERY_LANE:
        return f"SELECT 1 FROM outbox_parked p{hint} WHERE {where} AND p.lane = {stream.lane:d}"
    return (
        f"SELECT 1 FROM outbox_parked p{hint} LEFT JOIN outbox_lane h{hint} ON h.partition_no = p.partition_no"
        f" AND h.lane = p.lane AND h.target = p.target WHERE {where} AND h.lane IS NULL"
    )
