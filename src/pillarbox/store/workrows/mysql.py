"""MySQL and MariaDB. Keys are written into the statement as numbers: no driver's placeholder is as fast.

FORCE INDEX (PRIMARY) on each: on a table that looks small, the optimizer prefers to scan all of it, and then waits for
rows that other relays hold. Single-table DELETE takes no hint, hence the multi-table form with one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection

from ...ports import Parked, Sent, WorkKey
from ..raw import fetch, in_parts
from . import Fence

KEYS_PER_STATEMENT: Final = 1_000
"""Beyond range_optimizer_max_mem_size (8 MiB; about 230 bytes a key and column) MySQL scans, with warning 3170."""

LATER: Final = "UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND"
_PARKED_PER_STATEMENT: Final = 100  # error texts of 2,000 characters stay below 1 MiB, a small max_allowed_packet
_READY: Final = "outbox_ready FORCE INDEX (PRIMARY)"
_FENCED: Final = "owner = %s AND token = %s"
RECEIPT_AGAIN: Final = (
    " ON DUPLICATE KEY UPDATE sent_at = VALUES(sent_at), relay = VALUES(relay), token = VALUES(token),"
    " broker_partition = VALUES(broker_partition), broker_offset = VALUES(broker_offset)"
)


class MysqlRows:
    """See :class:`.WorkRows`."""

    def remove(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> int:
        start = f"DELETE r FROM outbox_ready AS r FORCE INDEX (PRIMARY) WHERE {_FENCED}"
        return _for_each_part(connection, start, tuple(fence), keys)

    def ours(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> set[WorkKey]:
        return _carrying(connection, keys, fence, " FOR UPDATE")

    def give_back(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> int:
        back = "leased_until = '1970-01-01', owner = '', claims = GREATEST(claims, 1) - 1"
        return _for_each_part(connection, f"UPDATE {_READY} SET {back} WHERE {_FENCED}", tuple(fence), keys)

    def given_back(self, connection: Connection, keys: Sequence[WorkKey], token: int) -> set[WorkKey]:
        return _carrying(connection, keys, Fence("", token), "")

    def extend(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence, seconds: float) -> int:
        # The affected-rows trap does not bite: SQLAlchemy asks the server for rows found, not rows changed.
        start = f"UPDATE {_READY} SET leased_until = {LATER} WHERE {_FENCED}"
        return _for_each_part(connection, start, (microseconds(seconds), *fence), keys)

    def add_receipts(self, connection: Connection, sent: Sequence[Sent], fence: Fence, *, again: bool) -> None:
        conflict = RECEIPT_AGAIN if again else ""
        if sent:  # variables keep the statement short: parsing it is most of its cost
            connection.exec_driver_sql("SET @sent = UTC_TIMESTAMP(6), @relay = %s, @token = %s", tuple(fence))
        for part in in_parts(sent, KEYS_PER_STATEMENT):
            values = ",".join(
                [
                    f"({number:d},{dest:d},@sent,@relay,@token,{_number(partition)},{_number(offset)})"
                    for (_, number, dest), partition, offset in part
                ]
            )
            connection.exec_driver_sql(
                "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)"
                f" VALUES {values}{conflict}"
            )

    def with_receipt(self, connection: Connection, keys: Sequence[WorkKey], fence: Fence) -> set[WorkKey]:
        found: set[WorkKey] = set()
        for part in in_parts(keys, KEYS_PER_STATEMENT):
            ids = ",".join(f"{key.id:d}" for key in part)
            sql = (
                "SELECT id, dest FROM outbox_receipt FORCE INDEX (PRIMARY)"
                f" WHERE id IN ({ids}) AND relay = %s AND token = %s"
            )
            there = set(fetch(connection, sql, tuple(fence)))
            found.update(key for key in part if (key.id, key.dest) in there)
        return found

    def add_parked(self, connection: Connection, parked: Sequence[Parked]) -> None:
        for part in in_parts(parked, _PARKED_PER_STATEMENT):
            values: list[Any] = []
            for key, lane, state, due_in, attempts, error in part:
                due = None if due_in is None else microseconds(due_in)  # an INTERVAL of NULL gives NULL
                values += (key.partition_no, lane, key.id, key.dest, state, due, attempts, error)
            rows = ",".join([f"(%s,%s,%s,%s,%s,{LATER},%s,%s,UTC_TIMESTAMP(6))"] * len(part))
            connection.exec_driver_sql(
                "INSERT INTO outbox_parked (partition_no, lane, id, dest, state, due_at, attempts, error, error_at)"
                f" VALUES {rows} ON DUPLICATE KEY UPDATE state = VALUES(state), due_at = VALUES(due_at),"
                " attempts = VALUES(attempts), error = VALUES(error), error_at = VALUES(error_at)",
                tuple(values),
            )

    def are_parked(self, connection: Connection, parked: Sequence[Parked]) -> set[WorkKey]:
        found: set[WorkKey] = set()
        for part in in_parts(parked, _PARKED_PER_STATEMENT):
            keys = " OR ".join(f"({parked_key(*one.key, one.lane)})" for one in part)
            columns = "partition_no, id, dest, state, attempts, error"
            there = set(fetch(connection, f"SELECT {columns} FROM outbox_parked FORCE INDEX (PRIMARY) WHERE {keys}"))
            found.update(one.key for one in part if (*one.key, one.state, one.attempts, one.error) in there)
        return found


def named(keys: Sequence[tuple[int, ...]]) -> str:
    """A condition that is true for exactly these (partition_no, id, dest, …), as key look-ups in every version.

    (MariaDB makes none of a row constructor, ``(a, b, c) IN (…)``.)
    """
    groups: dict[tuple[int, int], list[str]] = {}
    for row in keys:
        groups.setdefault((row[0], row[2]), []).append(str(int(row[1])))
    return " OR ".join(
        f"(partition_no = {partition_no:d} AND id IN ({','.join(ids)}) AND dest = {dest:d})"
        for (partition_no, dest), ids in groups.items()
    )


def parked_key(partition_no: int, number: int, dest: int, lane: int) -> str:
    """The condition for one parked row."""
    return f"partition_no = {partition_no:d} AND lane = {lane:d} AND id = {number:d} AND dest = {dest:d}"


def microseconds(seconds: float) -> int:
    """What INTERVAL takes."""
    return round(seconds * 1_000_000)


def _number(value: int | None) -> str:
    return "NULL" if value is None else str(int(value))


def _carrying(connection: Connection, keys: Sequence[WorkKey], fence: Fence, lock: str) -> set[WorkKey]:
    found: set[WorkKey] = set()
    for part in in_parts(keys, KEYS_PER_STATEMENT):
        sql = f"SELECT partition_no, id, dest FROM {_READY} WHERE {_FENCED} AND ({named(part)}){lock}"
        found.update(map(WorkKey._make, fetch(connection, sql, tuple(fence))))
    return found


def _for_each_part(connection: Connection, start: str, parameters: tuple[Any, ...], keys: Sequence[WorkKey]) -> int:
    return sum(
        connection.exec_driver_sql(f"{start} AND ({named(part)})", parameters).rowcount
        for part in in_parts(keys, KEYS_PER_STATEMENT)
    )
