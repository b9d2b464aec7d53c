"""MySQL and MariaDB. Keys are written into the statement as numbers: no driver's placeholder is as fast.

On a table that looks small the optimizer prefers to scan all of it, and then waits for rows that writers hold. UPDATE
heeds FORCE INDEX (PRIMARY); SELECT and DELETE scan in spite of it, on every version. There the keys come as a table of
their own that is joined first, or an optimizer hint forbids the scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from ...ports import Aside, Hold, Progress, Sent
from ..raw import fetch, in_light_parts, in_parts
from ..workrows.mysql import LATER, RECEIPT_AGAIN, microseconds, named
from .ownership import lease_ms
from .reading import MysqlSpans
from .statements import READY, Key, Keyed, Receipt, Renewal

KEYS_PER_STATEMENT: Final = 2_000
"""A usual round. Beyond range_optimizer_max_mem_size (8 MiB; 1.4 MB for these) MySQL scans, with warning 3170."""

_STATEMENT_BYTES: Final = 900_000
"""Below 1 MiB, a small max_allowed_packet."""

_ROW_BYTES: Final = 200  # what a parked row or a hold has besides its texts, with room to spare
_CHARACTER_BYTES: Final = 4  # at most, as UTF-8 or escaped


class MysqlStatements(MysqlSpans):
    """See :class:`.Statements`."""

    def advance(self, connection: Connection, renewal: Renewal, progress: Sequence[Progress]) -> int:
        """One statement for all partitions of a round."""
        fences = " OR ".join(
            f"(partition_no = {t.partition_no:d} AND token = {t.token:d} AND nonce = {t.nonce:d})"
            for t in (one.tenure for one in progress)
        )
        return connection.exec_driver_sql(
            f"UPDATE outbox_partition FORCE INDEX (PRIMARY) SET leased_until = {LATER}, lease_ms = %s,"
            f" low_id = {_case(progress, lambda one: one.low_id)},"
            f" handed_to = {_case(progress, lambda one: one.handed_to)},"
            f" careful_to = {_case(progress, lambda one: one.careful_to)},"
            f" crashes = {_case(progress, lambda one: one.crashes)}"
            f" WHERE owner = %s AND ({fences})",
            (microseconds(renewal.lease), lease_ms(renewal.lease), renewal.owner),
        ).rowcount

    def find(self, connection: Connection, keyed: Keyed, keys: Sequence[Key]) -> set[Key]:
        """Key look-ups, whatever the table's size."""
        columns = ", ".join(f"r.{name}" for name in keyed.columns)
        found: set[Key] = set()
        for part in in_parts(keys, KEYS_PER_STATEMENT):
            joined = _joined(connection, keyed, part)
            found.update(fetch(connection, f"SELECT STRAIGHT_JOIN {columns} FROM {joined} FOR UPDATE"))
        return found

    def delete(self, connection: Connection, keyed: Keyed, keys: Sequence[Key]) -> int:
        """Key look-ups, whatever the table's size."""
        obeys = _obeys_index_hints(connection)
        deleted = 0
        for part in in_parts(keys, KEYS_PER_STATEMENT):
            if obeys:  # parsed and planned in half the time
                rows = f"/*+ INDEX({keyed.table} PRIMARY) */ FROM {keyed.table} WHERE {_named(keyed, part)}"
            else:
                rows = f"r FROM {_joined(connection, keyed, part)}"
            deleted += connection.exec_driver_sql(f"DELETE {rows}").rowcount
        return deleted

    def add_receipts(self, connection: Connection, relay: str, receipts: Sequence[Receipt], *, again: bool) -> None:
        """Variables keep the statement short: parsing it is most of its cost."""
        if receipts:
            connection.exec_driver_sql("SET @sent = UTC_TIMESTAMP(6), @relay = %s", (relay,))
        for part in in_parts(receipts, KEYS_PER_STATEMENT):
            # Numbers only, so that no word but None can stand there.
            values = ",".join([f"({i},{d},@sent,@relay,{t},{p},{o})" for i, d, t, p, o in part]).replace("None", "NULL")
            connection.exec_driver_sql(
                "INSERT INTO outbox_receipt (id, dest, sent_at, relay, token, broker_partition, broker_offset)"
                f" VALUES {values}{RECEIPT_AGAIN if again else ''}"
            )

    def park(self, connection: Connection, rows: Sequence[Aside]) -> None:
        """An INTERVAL of NULL gives NULL."""
        one = f"(%s,%s,%s,%s,%s,{LATER},%s,0,%s,%s,UTC_TIMESTAMP(6))"
        for part in in_light_parts(rows, KEYS_PER_STATEMENT, _weight_of_aside, _STATEMENT_BYTES):
            values: list[Any] = []
            for (n, number, dest), stream, state, due_in, attempts, error in part:
                due = None if due_in is None else microseconds(due_in)
                values += (n, stream.lane, number, dest, state, due, attempts, stream.target, error)
            connection.exec_driver_sql(
                "INSERT INTO outbox_parked"
                " (partition_no, lane, id, dest, state, due_at, attempts, claims, target, error, error_at)"
                f" VALUES {','.join([one] * len(part))} ON DUPLICATE KEY UPDATE state = VALUES(state),"
                " due_at = VALUES(due_at), attempts = VALUES(attempts), claims = 0, target = VALUES(target),"
                " error = VALUES(error), error_at = VALUES(error_at)",
                tuple(values),
            )

    def hold(self, connection: Connection, holds: Sequence[Hold]) -> None:
        """An INTERVAL of NULL gives NULL."""
        one = f"(%s,%s,%s,%s,%s,{LATER},UTC_TIMESTAMP(6),%s,%s)"
        for part in in_light_parts(holds, KEYS_PER_STATEMENT, _weight_of_hold, _STATEMENT_BYTES):
            values: list[Any] = []
            for stream, mode, head_id, due_in, destination, reason in part:
                due = None if due_in is None else microseconds(due_in)
                values += (*stream, mode, head_id, due, destination, reason)
            connection.exec_driver_sql(
                "INSERT INTO outbox_lane"
                " (partition_no, lane, target, mode, head_id, due_at, since, destination, reason)"
                f" VALUES {','.join([one] * len(part))} ON DUPLICATE KEY UPDATE mode = VALUES(mode),"
                " head_id = VALUES(head_id), due_at = VALUES(due_at), destination = VALUES(destination),"
                " reason = VALUES(reason)",
                tuple(values),
            )

    def settle_sent(
        self, connection: Connection, renewal: Renewal, progress: Sequence[Progress], sent: Sequence[Sent]
    ) -> bool:
        """No statement of MySQL both deletes and inserts."""
        return False


def _weight_of_aside(row: Aside) -> int:
    return _ROW_BYTES + _CHARACTER_BYTES * len(row.error)


def _weight_of_hold(hold: Hold) -> int:
    return _ROW_BYTES + _CHARACTER_BYTES * (len(hold.destination) + len(hold.reason))


def _obeys_index_hints(connection: Connection) -> bool:
    """MySQL 8.0.20 and later have hints that forbid the scan, also for DELETE; and VALUES ROW(…) as a table."""
    dialect = connection.dialect
    version = dialect.server_version_info or ()
    return not dialect.is_mariadb and version >= (8, 0, 20)  # type: ignore[attr-defined]


def _joined(connection: Connection, keyed: Keyed, keys: Sequence[Key]) -> str:
    """The rows ``r`` of these keys, each looked up by its whole key."""
    table = _values if _obeys_index_hints(connection) else _union
    match = " AND ".join(f"r.{name} = k.{name}" for name in keyed.columns)
    return f"{table(keyed, keys)} STRAIGHT_JOIN {keyed.table} AS r FORCE INDEX (PRIMARY) ON {match}"


def _values(keyed: Keyed, keys: Sequence[Key]) -> str:
    rows = ",".join([f"ROW({','.join(map(str, key))})" for key in keys])
    return f"(VALUES {rows}) AS k ({', '.join(keyed.columns)})"


def _union(keyed: Keyed, keys: Sequence[Key]) -> str:
    first = ", ".join(f"{value} AS {name}" for name, value in zip(keyed.columns, keys[0], strict=True))
    rest = "".join([f" UNION ALL SELECT {','.join(map(str, key))}" for key in keys[1:]])
    return f"(SELECT {first}{rest}) AS k"


def _named(keyed: Keyed, keys: Sequence[Key]) -> str:
    """A condition that is true for exactly these rows. Ids of one stream come as one list: of a thousand conditions of
    four columns each, the range optimizer makes a plan in a third of a second."""
    if keyed == READY:
        return named(keys)
    at = keyed.columns.index("id") if "id" in keyed.columns else None
    if at is None:
        return " OR ".join([f"({_equal(keyed.columns, key)})" for key in keys])
    others, groups = keyed.columns[:at] + keyed.columns[at + 1 :], dict[Key, list[str]]()
    for key in keys:
        groups.setdefault(key[:at] + key[at + 1 :], []).append(str(int(key[at])))
    return " OR ".join([f"({_equal(others, key)} AND id IN ({','.join(ids)}))" for key, ids in groups.items()])


def _equal(columns: Sequence[str], values: Key) -> str:
    return " AND ".join([f"{name} = {value:d}" for name, value in zip(columns, values, strict=True)])


def _case(progress: Sequence[Progress], value: Callable[[Progress], int]) -> str:
    whens = [f"WHEN {one.tenure.partition_no:d} THEN {value(one):d}" for one in progress]
    return f"CASE partition_no {' '.join(whens)} END"
