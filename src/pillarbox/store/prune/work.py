"""Which ids still have work: a ready or a parked row. Both are looked for in one statement, which is one snapshot.

A delivery that moves from one table to the other between two statements would be seen in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from ...policy.retention import stretches
from ..raw import fetch, in_parts
from .words import Words

UNFINISHED: Final = ("RETRY", "SCHEDULED", "HELD")
ENDED: Final = ("DEAD", "BURIED")
_STRETCHES_PER_STATEMENT: Final = 60  # 16 partitions times 60 ranges: below the size at which MySQL scans


def with_work(
    connection: Connection,
    words: Words,
    ids: Sequence[int],
    partitions: int,
    states: Sequence[str] = UNFINISHED + ENDED,
) -> set[int]:
    """Those of ``ids`` (ascending) that have a ready row, or a parked one in one of ``states``.

    Looks by ranges of both keys, (partition_no, id) and (state, id). Rows with a partition number that does not exist
    count too: a writer with another number of partitions has work all the same.
    """
    if not ids:
        return set()
    size = 1 if words.dialect == "sqlite" else _STRETCHES_PER_STATEMENT
    found: set[int] = set()
    for part in in_parts(stretches(ids), size):
        found.update(row[0] for row in fetch(connection, _within(part, partitions, states, words)))
    return found.intersection(ids)


def any_work(connection: Connection, words: Words, ids: tuple[int, int], partitions: int) -> bool:
    """Whether any id from the first to the last has a ready or parked row."""
    return bool(fetch(connection, _within([ids], partitions, UNFINISHED + ENDED, words) + " LIMIT 1"))


def _within(part: Sequence[tuple[int, int]], partitions: int, states: Sequence[str], words: Words) -> str:
    if words.dialect == "postgresql":
        return _on_postgres(part, partitions, states)
    return _by_ranges(part, partitions, states, words)


def _by_ranges(part: Sequence[tuple[int, int]], partitions: int, states: Sequence[str], words: Words) -> str:
    ids = "(" + " OR ".join(f"id BETWEEN {low:d} AND {high:d}" for low, high in part) + ")"
    known = ",".join(str(number) for number in range(partitions))
    state_index = " FORCE INDEX (outbox_parked_state)" if words.by_key else ""
    ready = f"SELECT id FROM outbox_ready{words.by_key} WHERE"
    return (
        f"{ready} partition_no IN ({known}) AND {ids}"
        f" UNION ALL {ready} partition_no < 0 AND {ids} UNION ALL {ready} partition_no >= {partitions:d} AND {ids}"
        f" UNION ALL SELECT id FROM outbox_parked{state_index} WHERE state IN ({quoted(states)}) AND {ids}"
    )


def _on_postgres(part: Sequence[tuple[int, int]], partitions: int, states: Sequence[str]) -> str:
    # OR of ranges would be a filter here; joined to a list of ranges, each is a look-up of its own.
    ranges = "(VALUES " + ",".join(f"({low:d}::bigint,{high:d}::bigint)" for low, high in part) + ") AS s(low, high)"
    first, last = part[0][0], part[-1][1]
    within = "BETWEEN s.low AND s.high"
    stray = f"SELECT id FROM outbox_ready WHERE id BETWEEN {first:d} AND {last:d} AND partition_no"
    return (
        f"SELECT r.id FROM {ranges}, generate_series(0, {partitions - 1:d}) AS p(no), outbox_ready r"
        f" WHERE r.partition_no = p.no::smallint AND r.id {within}"
        f" UNION ALL {stray} < 0 UNION ALL {stray} >= {partitions:d}"
        f" UNION ALL SELECT k.id FROM {ranges}, unnest(ARRAY[{quoted(states)}]) AS t(state), outbox_parked k"
        f" WHERE k.state = t.state AND k.id {within}"
    )


def quoted(states: Sequence[str]) -> str:
    """States as a list in SQL."""
    return ",".join(f"'{state}'" for state in states)
