"""What waits in the outbox, for metrics: a few counts that cost what the backlog costs, never the history."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from ..ports import Backlog
from . import dbtime

WAITING: Final = ("RETRY", "HELD")
"""Parked states that count as late; SCHEDULED waits by intent, DEAD and BURIED do not wait."""


def backlog(connection: Connection) -> Backlog:
    """Count deliveries by state, holds by mode, living relays and unowned partitions.

    The counts walk ``outbox_ready`` and the index ``outbox_parked_state`` once: milliseconds for a thousand rows, some
    tenths of a second for a million. Do not ask more often than that allows.
    """
    counted = dict(_pairs(connection, "SELECT state, COUNT(*) FROM outbox_parked GROUP BY state"))
    states = {"READY": _number(connection, "SELECT COUNT(*) FROM outbox_ready")} | counted
    now = dbtime.now(connection)
    partitions = _number(connection, "SELECT partitions FROM outbox_meta WHERE one = 1")
    return Backlog(
        states=states,
        holds=dict(_pairs(connection, "SELECT mode, COUNT(*) FROM outbox_lane GROUP BY mode")),
        oldest_age=oldest_age(connection, partitions),
        relays=_number(connection, f"SELECT COUNT(*) FROM outbox_relay WHERE seen_until > {now}"),
        unowned=_unowned(connection, now),
    )


def _unowned(connection: Connection, now: str) -> int:
    """Partitions nobody reads; none where relays lease rows instead."""
    if connection.execute(text("SELECT lease FROM outbox_meta WHERE one = 1")).scalar_one() != "partition":
        return 0
    return _number(connection, f"SELECT COUNT(*) FROM outbox_partition WHERE owner = '' OR leased_until <= {now}")


def oldest_age(connection: Connection, partitions: int) -> float | None:
    """Seconds since the oldest delivery that could have been sent was recorded; None when none waits.

    The lowest id of each partition and state is one step at the edge of an index; the oldest is among them. One that
    was scheduled counts from its recording, too, from when it is due until it is sent.
    """
    edges = [f"SELECT MIN(id) AS id FROM outbox_ready WHERE partition_no = {n}" for n in range(partitions)]
    edges += [f"SELECT MIN(id) AS id FROM outbox_parked WHERE state = '{state}'" for state in WAITING]
    found = [number for number in connection.scalars(text(" UNION ALL ".join(edges))) if number is not None]
    if not found:
        return None
    age = dbtime.age(connection, "recorded_at")
    among = ",".join(map(str, found))
    oldest = connection.execute(text(f"SELECT MAX({age}) FROM outbox_event WHERE id IN ({among})")).scalar_one()
    return None if oldest is None else max(0.0, float(oldest))


def _pairs(connection: Connection, statement: str) -> list[tuple[str, int]]:
    return [(str(name), int(count)) for name, count in connection.execute(text(statement))]


def _number(connection: Connection, statement: str) -> int:
    return int(connection.execute(text(statement)).scalar_one())
