"""The embedded log as the ground: a file in a temporary folder, read without a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...embedded import EmbeddedLog
from ...event.destination import Destination, Topic
from ..model import EventId, NotVisible, Record
from ..ports import Address
from .claims import Claim
from .folders import own_folder

PARTITIONS: Final = 4
_LEASE: Final = 3.0  # seconds until a killed consumer's partitions go on elsewhere

_COMMITTED: Final = (
    "SELECT p.number, p.next_offset, g.committed FROM topic_partition p"
    " LEFT JOIN group_partition g ON g.partition_id = p.id AND g.group_name = ? WHERE p.topic = ? ORDER BY p.number"
)


@dataclass(slots=True)
class EmbeddedGround:
    """A :class:`~pillarbox.lab.ports.BrokerGround` on one file."""

    path: Path
    topic: str
    name: str = "embedded"
    address: Address | None = None  # no network in between

    @property
    def url(self) -> str:
        """As an application would write it."""
        return f"embedded:///{self.path.as_posix().lstrip('/')}?partitions={PARTITIONS}"

    @property
    def destination(self) -> Destination:
        """The topic of this cell."""
        return Topic(self.topic)

    def source(self, consumer: str) -> str:
        """The topic: every group reads all of it."""
        return self.topic

    def source_options(self) -> Mapping[str, Any]:
        """A killed consumer's partitions are free after three seconds."""
        return {"lease": _LEASE}

    def through(self, port: int) -> str | NotVisible:
        """There is no network that a proxy could stand in."""
        return NotVisible("the embedded log is a file: there is no network between it and the application")

    def records(self) -> tuple[Record, ...]:
        """All records by partition and offset. The log keeps no moments."""
        with EmbeddedLog(self.path) as log:
            found = log.records(self.topic)
        return tuple(
            Record(
                EventId(one.headers.get("id", f"{one.topic}[{one.partition}]@{one.offset}")),
                f"{one.topic}[{one.partition}]@{one.offset}",
                dict(one.headers),
            )
            for one in found
        )

    def state(self) -> Mapping[str, Any]:
        """Partitions and their ends. One file has no replicas."""
        ends = {number: end for number, end, _ in self._positions("")}
        return {
            "topic": self.topic,
            "partitions": len(ends),
            "replication_factor": 1,
            "min_insync_replicas": NotVisible("one file has no replicas"),
            "in_sync_replicas": NotVisible("one file has no replicas"),
            "end_offsets": ends,
            "records": sum(ends.values()),
        }

    def committed(self, consumer: str) -> Mapping[str, Any]:
        """The group's committed offset and the end, by partition, and how many records are in between."""
        rows = self._positions(consumer)
        return {
            "group": consumer,
            "committed": {number: at for number, _, at in rows},
            "ends": {number: end for number, end, _ in rows},
            "lag": sum(end - (at or 0) for _, end, at in rows),
        }

    def settings(self) -> Mapping[str, Any]:
        """One append is one SQLite transaction that waits for the disk; there is nothing to choose."""
        return {
            "broker": self.name,
            "server_version": f"SQLite {sqlite3.sqlite_version}",
            "acknowledged": "when the append's transaction is on the disk (synchronous=FULL)",
            "transactions": False,
        }

    def clock_offset(self) -> float | NotVisible:
        """The file's clock is this machine's own."""
        return 0.0

    def _positions(self, group: str) -> list[tuple[int, int, int | None]]:
        # Straight from the file, in a transaction that only reads: a member of the group would take its partitions.
        with closing(sqlite3.connect(self.path, timeout=5.0)) as connection:
            connection.execute("PRAGMA query_only = ON")
            return connection.execute(_COMMITTED, (group, self.topic)).fetchall()


@contextmanager
def embedded_ground(claimed: Claim) -> Iterator[EmbeddedGround]:
    """A log in the claim's folder, which is removed at the end, also after an error."""
    with own_folder(claimed):
        ground = EmbeddedGround(claimed.folder / "events.log", claimed.name)
        with EmbeddedLog(ground.path, partitions=PARTITIONS) as log:
            log.create_topic(claimed.name)
        yield ground
