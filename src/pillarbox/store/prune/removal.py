"""The deletes, by whole primary keys: a range would touch its neighbour, which may be a row just being written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from ..raw import fetch, in_parts
from .words import IDS_PER_STATEMENT, Words


def remove_events(connection: Connection, words: Words, ids: Sequence[int]) -> int:
    """Delete these events and the records of their replays; returns how many events there were."""
    _remove_replays(connection, words, ids)
    return _remove(connection, words, "outbox_event", ids)


def remove_receipts(connection: Connection, words: Words, counts: Mapping[int, int]) -> int:
    """Delete the receipts for destinations 0 to count - 1 of each id; returns how many there were."""
    removed = 0
    for dest in range(max(counts.values(), default=0)):
        ids = sorted(number for number, count in counts.items() if count > dest)
        removed += _remove(connection, words, "outbox_receipt", ids, f" AND dest = {dest:d}")
    return removed


def _remove_replays(connection: Connection, words: Words, ids: Sequence[int]) -> None:
    # Read first, then deleted by key: most events have none, and a range of the secondary index would be locked.
    index = " FORCE INDEX (outbox_replay_event)" if words.by_key else ""
    for part in in_parts(ids, IDS_PER_STATEMENT):
        rows = fetch(connection, f"SELECT seq FROM outbox_replay{index} WHERE {words.among(part)}")
        if rows:
            connection.exec_driver_sql(
                f"{words.delete('outbox_replay')} WHERE {words.among(sorted(row[0] for row in rows), 'seq')}"
            )


def _remove(connection: Connection, words: Words, table: str, ids: Sequence[int], also: str = "") -> int:
    return sum(
        connection.exec_driver_sql(f"{words.delete(table)} WHERE {words.among(part)}{also}").rowcount
        for part in in_parts(ids, IDS_PER_STATEMENT)
    )
