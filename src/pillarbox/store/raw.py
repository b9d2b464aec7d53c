"""Rows from a driver without SQLAlchemy's result objects: at tens of thousands a second, each object counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


def fetch(connection: Connection, sql: str, parameters: tuple[Any, ...] = ()) -> Sequence[tuple[Any, ...]]:
    """Run a query in the driver's own parameter style and fetch all its rows as the driver gives them."""
    result = connection.exec_driver_sql(sql, parameters)
    assert result.cursor is not None
    rows: Sequence[tuple[Any, ...]] = result.cursor.fetchall()
    result.close()
    return rows


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Slices of at most ``size``."""
    return (items[i : i + size] for i in range(0, len(items), size))


def in_light_parts(items: Sequence[T], size: int, weight: Callable[[T], int], limit: int) -> Iterator[Sequence[T]]:
    """Slices of at most ``size`` items that weigh ``limit`` together; what weighs more by itself is a slice alone.

    >>> [*in_light_parts([1, 1, 1, 5, 9, 1], 2, int, 6)]
    [[1, 1], [1, 5], [9], [1]]
    """
    start = total = 0
    for at, item in enumerate(items):
        more = weight(item)
        if at > start and (at - start == size or total + more > limit):
            yield items[start:at]
            start, total = at, 0
        total += more
    if start < len(items):
        yield items[start:]


def numbers(values: Iterable[int | None]) -> str:
    """A PostgreSQL array literal; cheaper than a list, of which the driver looks at every element.

    Made from the list's own text, which is the quickest way there: numbers only, so that no word but None is in it.
    """
    return "{" + str([*values])[1:-1].replace("None", "NULL") + "}"
