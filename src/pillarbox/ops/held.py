"""Keys and destinations that are held: what waits behind what, and letting it go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Connection

from ..ports import Stream
from ..store import holds
from ..store.holds import HeldStream
from ..store.skipping import skip as skip_in_transaction
from ..store.transactions import Transactions

__all__ = ["HeldPage", "HeldStream", "page", "release_destination", "release_key", "skip"]

BATCH: Final = 500
"""Holds in one transaction."""


class HeldPage(NamedTuple):
    """The oldest holds, and how many there are in all."""

    streams: list[HeldStream]
    total: int


def page(connection: Connection, *, destination: str | None, limit: int) -> HeldPage:
    """The ``limit`` oldest holds, perhaps of one destination only."""
    return HeldPage(holds.held_streams(connection, destination, limit), holds.count_held(connection, destination))


def release_key(tables: Transactions, key: str, destination: str | None) -> int:
    """Let go what waits for this key, now, without its head if that is dead; returns how many holds there were."""
    return tables.write(lambda c: _release(c, holds.streams_of_key(c, key, destination)))


def release_destination(tables: Transactions, destination: str) -> int:
    """The same for all keys of a destination, and for the destination itself."""
    streams = tables.read(lambda c: holds.streams_of_destination(c, destination))
    parts = (streams[start : start + BATCH] for start in range(0, len(streams), BATCH))
    return sum(tables.write(partial(_release, streams=part)) for part in parts)


def skip(tables: Transactions, key: str, destination: str | None, *, by: str, reason: str) -> int:
    """Bury the event that holds up this key, and let go what waits behind it; returns how many holds there were."""
    return tables.write(
        lambda c: skip_in_transaction(c, holds.streams_of_key(c, key, destination), by=by, reason=reason)
    )


def _release(connection: Connection, streams: Sequence[Stream]) -> int:
    wanted = set(streams)
    return holds.drain(connection, [stream for stream in holds.lock(connection, streams) if stream in wanted])
