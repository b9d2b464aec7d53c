"""What goes into the embedded log, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class NewRecord(NamedTuple):
    """A record to append. Records of one key share a partition and keep their order; None: any partition."""

    topic: str
    key: str | None
    headers: Sequence[tuple[str, str]]
    body: bytes


class Position(NamedTuple):
    """Where an appended record stands."""

    partition: int
    offset: int


class Record(NamedTuple):
    """A record as it is read back."""

    topic: str
    partition: int
    offset: int
    key: str | None
    headers: dict[str, str]
    body: bytes
