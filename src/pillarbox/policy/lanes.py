"""Ordering key to lane, lane to partition.

Computable in SQL and in any language (unlike Python's ``hash``); test vectors are in ``tests/unit/test_lanes.py`` and
``docs/tables.md``. An event without a key is its own key: its event id. SHA-256, because MySQL 9.7 has no MD5() any
more, while every server that Pillarbox runs on can compute this one in SQL.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

PARTITIONS: Final = 16
"""Partitions of the outbox. Stored in ``outbox_meta``; it changes only with writers stopped and the table drained."""

HASH_NAME: Final = "sha256-60"


def lane_of(key: str) -> int:
    """The first 15 hex digits of SHA-256 over the key's UTF-8 bytes: 60 bits, positive in any database."""
    return int(sha256(key.encode("utf-8")).hexdigest()[:15], 16)


def partition_of(lane: int, partitions: int = PARTITIONS) -> int:
    """The partition of a lane, from 0 to ``partitions`` - 1."""
    return lane % partitions
