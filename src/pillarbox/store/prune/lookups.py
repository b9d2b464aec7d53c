"""Look-ups of many rows by composite keys, in one statement and in the order of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .words import Words

Key = Sequence[int | str]


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
            # One look-up for each key, whatever the statistics say: a plan for all of them at once may scan.
            names = ", ".join(f"c{n}" for n in range(len(self.key)))
            equal = " AND ".join(f"{column} = v.c{n}" for n, column in enumerate(self.key))
            return (
                f"SELECT k.* FROM (VALUES {_rows(keys)}) AS v({names}) CROSS JOIN LATERAL"
                f" (SELECT {self.columns} FROM {self.table} WHERE {equal} AND {also}{locking}) AS k"
            )
        if words.dialect == "sqlite":
            wanted = f"({', '.join(self.key)}) IN (VALUES {_rows(keys)})"
            return f"SELECT {self.columns} FROM {self.table} WHERE {also} AND {wanted}"
        wanted = " OR ".join(f"({_equal(self.key, key)})" for key in keys)
        source = f"{self.table} FORCE INDEX ({self.index})"
        order = f"ORDER BY {', '.join(self.key)}"
        return f"SELECT {self.columns} FROM {source} WHERE {also} AND ({wanted}) {order}{locking}"

    def delete(self, words: Words, keys: Sequence[Key]) -> str:
        """A DELETE of the rows with these keys, locked before."""
        if words.dialect == "postgresql":
            rows = LookUp("ctid", self.table, self.key).sql(words, keys)
            return f"DELETE FROM {self.table} WHERE ctid = ANY(ARRAY({rows}))"
        if words.dialect == "sqlite":
            return f"DELETE FROM {self.table} WHERE ({', '.join(self.key)}) IN (VALUES {_rows(keys)})"
        return f"{words.delete(self.table)} WHERE {' OR '.join(f'({_equal(self.key, key)})' for key in keys)}"


def _rows(keys: Sequence[Key]) -> str:
    return ", ".join(f"({', '.join(_literal(part) for part in key)})" for key in keys)


def _equal(columns: Sequence[str], key: Key) -> str:
    return " AND ".join(f"{column} = {_literal(part)}" for column, part in zip(columns, key, strict=True))


def _literal(part: int | str) -> str:
    return f"{part:d}" if isinstance(part, int) else f"'{part}'"
