"""Held rows whose hold is gone, by somebody's hand: nothing would ever wake them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, text

from ..dbtime import now
from ..raw import fetch

PAGE: Final = 100
"""Rows looked at in one partition each time, so that the cost does not grow with what is held."""

Place = tuple[int, int]
"""A partition and a lane."""


class Unheld:
    """Walks over the parked rows, a page of each partition at a time; the rest of a long lane is passed over."""

    def __init__(self) -> None:
        self._after: dict[int, int] = {}  # by partition, the last lane that was looked at

    def look(self, connection: Connection, partition_nos: Sequence[int]) -> list[Place]:
        """Where there are such rows in the next pages; one statement, which locks nothing."""
        if not partition_nos:
            return []
        found: dict[Place, bool] = {}
        rows: dict[int, int] = {}
        for number, lane, unheld in fetch(connection, self._pages(connection, partition_nos)):
            found[number, lane] = found.get((number, lane), False) or bool(unheld)
            rows[number] = rows.get(number, 0) + 1
        for number in partition_nos:
            if rows.get(number, 0) < PAGE:
                self._after.pop(number, None)  # from the start again
            else:
                self._after[number] = max(lane for n, lane in found if n == number)
        return sorted(place for place, unheld in found.items() if unheld)

    def _pages(self, connection: Connection, partition_nos: Sequence[int]) -> str:
        hint = " FORCE INDEX (PRIMARY)" if connection.dialect.name in {"mysql", "mariadb"} else ""
        columns, order = "partition_no, lane, target, state", "partition_no, lane, id, dest"
        pages = []
        for number in partition_nos:
            after = self._after.get(number)
            behind = "" if after is None else f" AND lane > {after:d}"
            pages.append(
                f"SELECT * FROM (SELECT {columns} FROM outbox_parked{hint}"
                f" WHERE partition_no = {number:d}{behind} ORDER BY {order} LIMIT {PAGE}) s{number}"
            )
        return (
            "SELECT p.partition_no, p.lane,"
            " CASE WHEN p.state = 'HELD' AND h.lane IS NULL AND d.lane IS NULL THEN 1 ELSE 0 END"
            f" FROM ({' UNION ALL '.join(pages)}) p"
            f" LEFT JOIN outbox_lane h{hint}"
            " ON h.partition_no = p.partition_no AND h.lane = p.lane AND h.target = p.target"
            f" LEFT JOIN outbox_lane d{hint} ON d.partition_no = p.partition_no AND d.lane = -1 AND d.target = p.target"
        )


def free(connection: Connection, places: Sequence[Place]) -> int:
    """They come due at once, as any row whose wait is over; returns how many."""
    freed = 0
    for number, lane in places:
        sql = (
            f"UPDATE outbox_parked SET state = 'RETRY', due_at = {now(connection)}"
            f" WHERE partition_no = {number:d} AND lane = {lane:d} AND state = 'HELD'"
            " AND NOT EXISTS (SELECT 1 FROM outbox_lane h WHERE h.partition_no = outbox_parked.partition_no"
            " AND h.target = outbox_parked.target AND h.lane IN (outbox_parked.lane, -1))"
        )
        freed += connection.execute(text(sql)).rowcount
    return freed
