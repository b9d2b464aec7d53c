"""Raw loops that own all partitions: the partition lease by hand, one owner, read in order, settled under a fence.

A batch is of one partition as long as that has enough, and the next batch begins at the next one: fair, one range of
one index for a read, and one partition row to fence. Rows are deleted by their exact keys, never by a range: a row
whose transaction committed late may lie in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from bench.raw_loop import OWNER, Row

PARTITIONS = 16
EVENT = "e.event_id, e.event_type, e.schema_version, e.aggregate_type, e.aggregate_id, e.event_key"
REST = "e.headers, e.content_type, e.payload, e.destination, e.routing_key"

Read = Callable[[int, int, int], Sequence[Row]]
"""Rows of a partition with ids above a mark, at most so many."""


ReadAll = Callable[[int], Sequence[Row]]
"""Rows of all partitions, at most so many."""


class Round:
    """Whose turn it is, and how far each partition was read.

    On a backlog, ``ahead`` of what is settled, a read begins behind the rows that are on their way. On a trickle
    nothing is on its way when it reads, and one query from the start finds also what was committed late.
    """

    def __init__(self, read: Read, read_all: ReadAll, ahead: bool) -> None:
        self._read = read
        self._read_all = read_all
        self._ahead = ahead
        self._order = deque(range(PARTITIONS))
        self._read_to = [0] * PARTITIONS

    def take(self, limit: int) -> Sequence[Row]:
        """Up to ``limit`` rows: of one partition if it has as many, of further ones if not."""
        if not self._ahead:
            return self._read_all(limit)
        rows: list[Row] = []
        for _ in range(PARTITIONS):
            partition_no = self._order[0]
            found = self._read(partition_no, self._read_to[partition_no], limit - len(rows))
            if found:
                self._read_to[partition_no] = found[-1][1]
                rows += found
            self._order.rotate(-1)
            if len(rows) == limit:
                break
        return rows


def last_ids(rows: Sequence[Row]) -> dict[int, int]:
    """The highest id of each partition, which is its last: rows are in order."""
    return {row[0]: row[1] for row in rows}


def owned(token: int, nonce: int) -> str:
    """The rows of ``outbox_partition``, all of them this owner's."""
    return ", ".join(f"({no}, '{OWNER}', {token}, {nonce})" for no in range(PARTITIONS))
