"""Where servers differ in what pruning says to them. Ids are written into the statements as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..capabilities import Capabilities

IDS_PER_STATEMENT: Final = 1_000
"""Longer lists than about this make MySQL scan (range_optimizer_max_mem_size), and take long to parse."""


@dataclass(frozen=True, slots=True)
class Words:
    """A server's way to say it.

    ``lock``: rows that somebody else holds are passed over where the server can; else the engine's short lock time-out
    ends the wait, and the batch is tried later.
    """

    dialect: str
    by_key: str
    lock: str
    size: str
    ago: str

    def among(self, ids: Iterable[int], column: str = "id") -> str:
        """A condition that holds for these ids; for reads without locks only, see :mod:`.lookups`."""
        listed = ",".join(f"{number:d}" for number in ids)
        if self.dialect == "postgresql":
            return f"{column} = ANY('{{{listed}}}'::bigint[])"
        return f"{column} IN ({listed})"

    def moment(self, seconds: float) -> str:
        """A query for the text of the moment ``seconds`` before the database's now."""
        return self.ago.format(seconds=f"{seconds:.6f}", microseconds=round(seconds * 1_000_000))


def words_of(capabilities: Capabilities) -> Words:
    """The words for this very server."""
    match capabilities.server:
        case "PostgreSQL":
            ago = "SELECT CAST(clock_timestamp() - interval '{seconds} seconds' AS text)"
            return Words("postgresql", "", " FOR UPDATE SKIP LOCKED", "octet_length(payload)", ago)
        case "SQLite":
            ago = "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now', '-{seconds} seconds')"
            return Words("sqlite", "", "", "length(payload)", ago)
        case _:
            lock = " FOR UPDATE SKIP LOCKED" if capabilities.skip_locked else " FOR UPDATE"
            ago = "SELECT CAST(UTC_TIMESTAMP(6) - INTERVAL {microseconds} MICROSECOND AS CHAR)"
            return Words("mysql", " FORCE INDEX (PRIMARY)", lock, "LENGTH(payload)", ago)
