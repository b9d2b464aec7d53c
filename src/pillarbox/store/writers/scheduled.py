"""Writing events that go later: their work rows start among the parked ones, SCHEDULED with a due time.

``target``, the hashed destination, tells the due mover which holds concern the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PARKED_ROW: Final = "(?, ?, ?, ?, 'SCHEDULED', ?, 0, ?, '', {now})"
PARKED: Final = (
    "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, due_at, attempts, target, error, error_at) "
)

# PostgreSQL, one statement: {event} inserts the events and returns their ids.
PG_ONE: Final = (
    "WITH e AS ({event}) "
    + PARKED
    + "SELECT CAST(? AS smallint), CAST(? AS bigint), e.id, d.place - 1, 'SCHEDULED', CAST(? AS timestamptz), 0, "
    "d.target, '', clock_timestamp() "
    "FROM e CROSS JOIN unnest(CAST(? AS bigint[])) WITH ORDINALITY AS d(target, place) RETURNING id"
)
PG_OF_MANY: Final = (
    PARKED + "SELECT g.partition_no, g.lane, e.id, d.place - 1, 'SCHEDULED', g.due, 0, d.target, '', clock_timestamp() "
    "FROM e JOIN g ON g.event_id = e.event_id CROSS JOIN LATERAL "
    "unnest(CAST(string_to_array(g.targets, ',') AS bigint[])) WITH ORDINALITY AS d(target, place)"
)

PAST: Final = {
    "postgresql": "SELECT clock_timestamp() >= CAST(? AS timestamptz)",
    "mysql": "SELECT UTC_TIMESTAMP(6) >= CAST(? AS DATETIME(6))",
    "mariadb": "SELECT UTC_TIMESTAMP(6) >= CAST(? AS DATETIME(6))",
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') >= ?",
}
"""Whether a time has come by the database's clock."""


def joined(targets: Sequence[int]) -> str:
    """Several numbers in one parameter: arrays of arrays would all have to be of one length."""
    return ",".join(map(str, targets))
