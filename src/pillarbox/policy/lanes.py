"""Ordering key to lane, lane to partition.

Computable in SQL and in any language (unlike Python's ``hash``); test vectors are in ``tests/unit/test_lanes.py`` and
``docs/tables.md``. An event without a key is its own key: its event id.
"""

from __future__ import annotations

from hashlib import md5
from typing import Final

PARTITIONS: Final = 16
"""Partitions of the outbox. Stored in ``outbox_meta``; it changes only with writers stopped and the table drained."""

HASH_NAME: Final = "md5-60"


def lane_of(key: str) -> int:
    """The first 15 hex digits of MD5 over the key's UTF-8 bytes: 60 bits, positive in any database."""
    return int(md5(key.encode("utf-8"), usedforsecurity=False).hexdigest()[:15], 16)


def partition_of(lane: int, partitions: int = PARTITIONS) -> int:
    """The partition of a lane, from 0 to ``partitions`` - 1."""
    return lane % partitions
