"""SQLite by sqlite3, all partitions owned."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.raw_loop import LEASE_SECONDS, OWNER, Position, Row, Taken, all_or_nothing
from bench.raw_owned import EVENT, REST, Round, last_ids, owned
from bench.raw_sqlite import RECEIPT, connect


class OwnedSQLite:
    """SQLite by sqlite3: reading needs no transaction."""

    def __init__(self, url: str, *, ahead: bool = True) -> None:
        self._connection = connect(url)
        self._token, self._nonce = 1, time.time_ns()
        self._round = Round(self._read, self._read_all, ahead)
        self._connection.execute(
            "INSERT OR REPLACE INTO outbox_partition (partition_no, owner, token, nonce)"
            f" VALUES {owned(self._token, self._nonce)}"
        )

    def take(self, limit: int) -> Taken:
        return Taken(self._round.take(limit))

    def _read(self, partition_no: int, after: int, limit: int) -> Sequence[Row]:
        return self._select("WHERE r.partition_no = ? AND r.id > ? ORDER BY r.id", partition_no, after, limit)

    def _read_all(self, limit: int) -> Sequence[Row]:
        return self._select("ORDER BY r.partition_no, r.id", limit)

    def _select(self, which: str, *parameters: int) -> Sequence[Row]:
        sql = (
            f"SELECT r.partition_no, r.id, {EVENT}, replace(e.occurred_at, ' ', 'T') || 'Z', {REST}"
            f" FROM outbox_ready r CROSS JOIN outbox_event e ON e.id = r.id {which} LIMIT ?"
        )
        return self._connection.execute(sql, parameters).fetchall()

    def settle(self, taken: Taken, positions: Sequence[Position]) -> None:
        many = self._connection.executemany
        fence = (
            "UPDATE outbox_partition"
            f" SET leased_until = strftime('%Y-%m-%d %H:%M:%f', 'now', '+{LEASE_SECONDS} seconds'),"
            f" handed_to = ? WHERE partition_no = ? AND owner = '{OWNER}' AND token = ? AND nonce = ?"
        )
        last = last_ids(taken.rows)
        self._connection.execute("BEGIN IMMEDIATE")
        owned = many(fence, [(number, no, self._token, self._nonce) for no, number in last.items()]).rowcount
        all_or_nothing(owned, len(last))
        delete = "DELETE FROM outbox_ready WHERE partition_no = ? AND id = ? AND dest = 0"
        all_or_nothing(many(delete, [row[:2] for row in taken.rows]).rowcount, len(taken.rows))
        pairs = zip(taken.rows, positions, strict=True)
        many(RECEIPT, [(row[1], self._token, *position) for row, position in pairs])
        self._connection.execute("COMMIT")
