"""The deletes, by whole primary keys, in the order event, receipt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection

from ..raw import fetch, in_parts
from .lookups import Key, LookUp, alone
from .words import IDS_PER_STATEMENT, Words

_EVENT: Final = LookUp("id", "outbox_event", ("id",))
_RECEIPT: Final = LookUp("id", "outbox_receipt", ("id", "dest"))
_REPLAYS_OF: Final = LookUp("seq", "outbox_replay", ("id",), "outbox_replay_event")
_REPLAY: Final = LookUp("seq", "outbox_replay", ("seq",))


def remove_events(connection: Connection, words: Words, ids: Sequence[int]) -> int:
    """Delete these events and the records of their replays; returns how many events there were."""
    replays: list[int] = []
    for part in in_parts(ids, IDS_PER_STATEMENT):
        replays += [row[0] for row in fetch(connection, _REPLAYS_OF.sql(words, alone(part)))]
    _remove(connection, words, _REPLAY, alone(sorted(replays)))
    return _remove(connection, words, _EVENT, alone(ids))


@contextmanager
def small_row_image(connection: Connection, words: Words, *, wanted: bool) -> Iterator[None]:
    """On MySQL and MariaDB, let the binary log have only the primary keys of what is deleted within.

    Takes the right to set it (MySQL: SESSION_VARIABLES_ADMIN or SYSTEM_VARIABLES_ADMIN), else AccessRefused (PB-008).
    """
    if not wanted or words.dialect != "mysql":
        yield
        return
    connection.exec_driver_sql("SET SESSION binlog_row_image = 'MINIMAL'")
    try:
        yield
    finally:  # the connection may be pooled, and serve others after this
        connection.exec_driver_sql("SET SESSION binlog_row_image = DEFAULT")


def remove_receipts(connection: Connection, words: Words, counts: Mapping[int, int]) -> int:
    """Delete the receipts for destinations 0 to count - 1 of each id; returns how many there were."""
    keys = [(number, dest) for number in sorted(counts) for dest in range(counts[number])]
    return _remove(connection, words, _RECEIPT, keys)


def _remove(connection: Connection, words: Words, where: LookUp, keys: Sequence[Key]) -> int:
    return sum(
        connection.exec_driver_sql(where.delete(words, part)).rowcount for part in in_parts(keys, IDS_PER_STATEMENT)
    )
