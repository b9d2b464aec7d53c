"""Reading holds: the lanes (or whole destinations) whose later events wait."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from ...ports import Hold, Stream
from ..dbtime import age


def of_partitions(connection: Connection, partition_nos: Sequence[int], *, drain_only: bool = False) -> list[Hold]:
    """A range of the primary key (partition_no, lane, target) for each partition; of (mode, partition_no) to drain."""
    if not partition_nos:
        return []
    numbers = ", ".join(str(int(number)) for number in partition_nos)
    hint = " FORCE INDEX (outbox_lane_mode)" if drain_only and connection.dialect.name in {"mysql", "mariadb"} else ""
    drain = " AND mode = 'drain'" if drain_only else ""
    rows = connection.execute(
        text(
            "SELECT partition_no, lane, target, mode, head_id,"
            f" CASE WHEN due_at IS NOT NULL THEN -{age(connection, 'due_at')} END, destination, reason"
            f" FROM outbox_lane{hint} WHERE partition_no IN ({numbers}){drain}"
            " ORDER BY partition_no, lane, target"
        )
    )
    return [
        Hold(Stream(number, lane, target), mode, head, None if due is None else max(0.0, float(due)), where, why)
        for number, lane, target, mode, head, due, where, why in rows
    ]
