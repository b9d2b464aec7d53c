"""Look-ups and deletes of many rows by their whole keys, in the order of the keys, and of no other row.

A statement that locks must not touch a neighbour: it may be a row that somebody is just writing, and two that scan into
each other's rows deadlock. That is left to no optimizer: with ``id IN (…)``, MySQL and MariaDB scan the whole key of a
table that looks small, in spite of FORCE INDEX, if no other column is asked for, and PostgreSQL when statistics lie.
A join from a list of keys cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .words import Words

Key = Sequence[int]


@dataclass(frozen=True, slots=True)
class LookUp:
    """Which columns of which table, and the columns of the key (or its front); ``index`` is its name on MySQL."""

    columns: str
    table: str
    key: tuple[str, ...]
    index: str = "PRIMARY"

    def sql(self, words: Words, keys: Sequence[Key], *, also: str = "true", lock: bool = False) -> str:
        """The statement for these keys, which come sorted: rows are locked in their order."""
        locking = words.lock if lock else ""
        if words.dialect == "postgresql":
            # OFFSET 0 keeps the sub-select one: merged into the join, it would be planned by its statistics again.
            names = ", ".join(f"c{n}" for n in range(len(self.key)))
            return (
                f"SELECT k.* FROM (VALUES {_rows(keys)}) AS v({names}) CROSS JOIN LATERAL"
                f" (SELECT {self.columns} FROM {self.table} t WHERE {self._matches} AND {also} OFFSET 0{locking}) AS k"
            )
        if words.dialect == "sqlite":
            return f"SELECT {self.columns} FROM {self.table} WHERE {also} AND {self._among(keys)}"
        return f"SELECT {self.columns} {self._joined(keys)} WHERE {also}{locking}"

    def delete(self, words: Words, keys: Sequence[Key]) -> str:
        """A DELETE of the rows with these keys; on PostgreSQL of all rows of these ids, if the key begins with one."""
        if words.dialect == "postgresql" and self.key[0] in ("id", "seq"):
            # Not by ctid: events and receipts may be partitioned, and a ctid names a row in every partition.
            return f"DELETE FROM {self.table} WHERE {words.among(sorted({key[0] for key in keys}), self.key[0])}"
        if words.dialect == "postgresql":
            rows = LookUp("ctid", self.table, self.key).sql(words, keys)
            return f"DELETE FROM {self.table} WHERE ctid = ANY(ARRAY({rows}))"
        if words.dialect == "sqlite":
            return f"DELETE FROM {self.table} WHERE {self._among(keys)}"
        return f"DELETE t {self._joined(keys)}"

    @property
    def _matches(self) -> str:
        return " AND ".join(f"t.{column} = v.c{n}" for n, column in enumerate(self.key))

    def _among(self, keys: Sequence[Key]) -> str:
        return f"({', '.join(self.key)}) IN (VALUES {_rows(keys)})"

    def _joined(self, keys: Sequence[Key]) -> str:
        first = ", ".join(f"{part:d} AS c{n}" for n, part in enumerate(keys[0]))
        rows = [f"SELECT {first}", *(f"SELECT {', '.join(map(str, key))}" for key in keys[1:])]
        index = f"FORCE INDEX ({self.index})"
        return f"FROM ({' UNION ALL '.join(rows)}) AS v STRAIGHT_JOIN {self.table} AS t {index} ON {self._matches}"


def alone(ids: Iterable[int]) -> list[tuple[int]]:
    """Ids as keys."""
    return [(number,) for number in ids]


def _rows(keys: Sequence[Key]) -> str:
    return ", ".join(f"({', '.join(map(str, key))})" for key in keys)
