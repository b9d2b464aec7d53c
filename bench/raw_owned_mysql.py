"""MySQL and MariaDB by PyMySQL, all partitions owned."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.raw_loop import LEASE_SECONDS, OWNER, Position, Row, Taken, all_or_nothing
from bench.raw_mysql import connect, receipts
from bench.raw_owned import EVENT, REST, Round, last_ids, owned


class OwnedMySQL:
    """MySQL and MariaDB by PyMySQL: one query per partition of a batch, one transaction to settle it."""

    def __init__(self, url: str, *, ahead: bool = True) -> None:
        self._connection = connect(url)
        self._cursor = self._connection.cursor()
        self._token, self._nonce = 1, time.time_ns()
        self._round = Round(self._read, self._read_all, ahead)
        self._cursor.execute(
            "INSERT INTO outbox_partition (partition_no, owner, token, nonce)"
            f" VALUES {owned(self._token, self._nonce)}"
            " ON DUPLICATE KEY UPDATE owner = VALUES(owner), token = VALUES(token), nonce = VALUES(nonce)"
        )

    def take(self, limit: int) -> Taken:
        return Taken(self._round.take(limit))

    def _read(self, partition_no: int, after: int, limit: int) -> Sequence[Row]:
        return self._select(f"WHERE r.partition_no = {partition_no} AND r.id > {after} ORDER BY r.id LIMIT {limit}")

    def _read_all(self, limit: int) -> Sequence[Row]:
        return self._select(f"ORDER BY r.partition_no, r.id LIMIT {limit}")

    def _select(self, which: str) -> Sequence[Row]:
        self._cursor.execute(
            f"SELECT STRAIGHT_JOIN r.partition_no, r.id, {EVENT}, CONCAT(e.occurred_at, '+00:00'), {REST}"
            f" FROM outbox_ready r JOIN outbox_event e ON e.id = r.id {which}"
        )
        return self._cursor.fetchall()

    def settle(self, taken: Taken, positions: Sequence[Position]) -> None:
        ids: dict[int, list[str]] = {}
        for row in taken.rows:
            ids.setdefault(row[0], []).append(str(row[1]))
        execute = self._cursor.execute
        execute("BEGIN")
        all_or_nothing(execute(self._fence(last_ids(taken.rows))), len(ids))
        gone = sum(
            execute(f"DELETE FROM outbox_ready WHERE partition_no = {no} AND dest = 0 AND id IN ({','.join(some)})")
            for no, some in ids.items()
        )
        all_or_nothing(gone, len(taken.rows))
        execute(receipts(taken.rows, positions, self._token))
        self._connection.commit()

    def _fence(self, last: dict[int, int]) -> str:
        cases = " ".join(f"WHEN {no} THEN {number}" for no, number in last.items())
        return (
            f"UPDATE outbox_partition SET leased_until = UTC_TIMESTAMP(6) + INTERVAL {LEASE_SECONDS} SECOND,"
            f" handed_to = CASE partition_no {cases} END WHERE partition_no IN ({','.join(map(str, last))})"
            f" AND owner = '{OWNER}' AND token = {self._token} AND nonce = {self._nonce}"
        )
